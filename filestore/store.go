package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
	"github.com/holdfast-go/holdfast/internal/notices"
)

// Options change how a store is opened. The zero value and nil are the defaults.
type Options struct {
	// AllowNetwork opens a folder on a network file system, which is refused otherwise. It is for
	// those that are in fact local, such as some FUSE ones: locks never reach beyond this host.
	AllowNetwork bool
}

// A Store keeps locks in a folder. It implements [driver.Store] and [driver.Notifier]. It must be
// closed.
type Store struct {
	dir          string
	allowNetwork bool
	host         host
	lookStep     time.Duration // a constant outside of tests
	notices      notices.Mailbox

	turns     [shardCount]chan struct{} // full while a request uses the shard, and for good after Close
	isClosing atomic.Bool
	closing   context.Context // ends with Close
	close     context.CancelFunc

	opening sync.Mutex // held while the folder is opened, which lasts as long as the disk hangs
	folder  *folder    // kept open from request to request; nil before the first one
}

var _ driver.Notifier = (*Store)(nil)

// New opens the store in a folder. One that is missing is made when the first lock is taken, for
// this user alone. The error matches [driver.ErrUnsupported] if the folder is on a network file
// system and opts does not allow that, or has the locks of an older version, and
// [driver.ErrInvalid] if it belongs to another user or everybody may write it.
func New(dir string, opts *Options) (*Store, error) {
	h, err := thisHost()
	if err != nil {
		return nil, err
	}
	return openWithHost(h, dir, opts)
}

func openWithHost(h host, dir string, opts *Options) (*Store, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: the store's folder has no name", driver.ErrInvalid)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, allowNetwork: opts != nil && opts.AllowNetwork, host: h, lookStep: lookStep}
	s.notices.Tag = func(_, owner string) string { return hashOf(owner) }
	s.closing, s.close = context.WithCancel(context.Background())
	for i := range s.turns {
		s.turns[i] = make(chan struct{}, 1)
	}
	f, path, err := s.openFolder()
	if err != nil {
		return nil, notApplied("open", path, err)
	}
	f.close()
	return s, nil
}

// Dir returns the absolute path of the store's folder.
func (s *Store) Dir() string { return s.dir }

// Session returns the file that represents this Store, or nil if no lock can be acquired. It is for
// programs that hand their locks to a child. A child that inherits the file
// ([os/exec.Cmd].ExtraFiles) keeps the holds in force until their TTL even if this process is
// killed, save on Windows. The file must not be closed, read or written.
func (s *Store) Session() *os.File {
	_, own, err := s.currentFolder(true)
	if err != nil {
		return nil
	}
	return own.file
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	st := newState(req.Name, req.Owner)
	req.Owner = st.hash
	public := encodeJSON(publicData{Name: req.Name, Since: s.host.wall().UTC(), Holder: req.Holder, Metadata: req.Metadata})
	st.adds = append(public[1:], '\n')
	s.notices.Expect(req.Name, st.owner, max(req.TTL, req.Place)) // before others can read the entry
	res, err := do(ctx, s, st, true, func(*state) (res driver.Result, err error) {
		data := lineData{session: st.own.id, detached: req.Detached, public: st.adds}
		tokens := lockqueue.Counter{Last: st.header.Last, Clock: max(0, s.host.wall().UnixMicro())}
		own, _, err := st.queue.Acquire(&req, data, st.now, &tokens)
		if err == nil && own.State != driver.Held && st.bury() {
			st.queue.Release(req.Owner, 0, st.now)
			own, _, err = st.queue.Acquire(&req, data, st.now, &tokens)
		}
		if err = cmp.Or(err, st.failure); err != nil {
			return res, err
		}
		st.header.Last = tokens.Last
		res = driver.Result{Granted: own.State == driver.Held, Waiting: own.State == driver.Waiting, Token: own.Token}
		if !res.Granted {
			res.Held = st.record(st.queue.Holds()[0])
		}
		return res, nil
	})
	if err == nil && !res.Granted && !res.Waiting || driver.IsNotApplied(err) {
		s.notices.Forget(req.Name, st.owner)
	}
	return res, err
}

// Renew implements [driver.Store]. One entry may be renewed and the next one not.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries, errs := make([]driver.Entry, len(reqs)), make([]error, len(reqs))
	var group sync.WaitGroup
	for i, req := range reqs { // One that is held up holds up no other.
		group.Go(func() {
			s.notices.Expect(req.Name, req.Owner, req.TTL)
			entries[i], errs[i] = do(ctx, s, newState(req.Name, req.Owner), true, func(st *state) (driver.Entry, error) {
				own, _ := st.queue.Renew(st.hash, req.Token, req.TTL, st.now)
				if own.State == driver.Waiting && st.bury() {
					own, _ = st.queue.Renew(st.hash, req.Token, req.TTL, st.now)
				}
				if own.State != driver.Lost { // Its notices come to this Store from now on.
					st.queue.Entries()[st.queue.Index(st.hash)].Data.session = st.own.id
				}
				return own, st.failure
			})
			if entries[i].State == driver.Lost {
				s.notices.Forget(req.Name, req.Owner)
			}
		})
	}
	group.Wait()
	err := cmp.Or(errs...)
	if err != nil && len(reqs) > 1 && s.closing.Err() == nil { // It stands for all, of which some may have been prolonged.
		err = fmt.Errorf("of %d entries some have no answer: %v", len(reqs), err)
	}
	return entries, err
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	s.notices.Forget(req.Name, req.Owner)
	return do(ctx, s, newState(req.Name, req.Owner), false, func(st *state) (bool, error) {
		ended, _ := st.queue.Release(st.hash, req.Keep, st.now)
		return ended, nil
	})
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return do(ctx, s, newState(name, ""), false, func(st *state) (records []driver.Record, err error) {
		st.bury()
		st.broken, _ = st.queue.Break(token, st.now)
		for i := range st.broken {
			records = append(records, st.record(&st.broken[i]))
		}
		return records, nil
	})
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return do(ctx, s, newState(name, ""), false, (*state).holds)
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for i := range shardCount {
			st := &state{number: i}
			records, err := do(ctx, s, st, false, (*state).all)
			if err == nil {
				err = st.failure
			}
			isOfOneFile := errors.Is(err, driver.ErrCorrupt) || errors.Is(err, fs.ErrPermission) && st.shard != nil
			if err != nil && (!yield(driver.Record{}, err) || !isOfOneFile) {
				return
			}
			for _, rec := range records {
				if strings.HasPrefix(rec.Name, prefix) && !yield(rec, nil) {
					return
				}
			}
		}
	}
}

// Notify implements [driver.Notifier].
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.notices.Notify(f)
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:    "file",
		Fencing:  true,
		Queue:    true,
		Limits:   true,
		Keep:     true,
		Tokens:   driver.MaxTokens,
		Grain:    clockStep,
		Crash:    driver.FateFreed,
		Restart:  driver.FateFreed,
		Failover: driver.FateFreed, // The locks of a host cannot outlive it.
	}
}

// Close implements [driver.Store]. The holds and places of this Store end with it, save detached
// holds. If the disk hangs, Close returns an error after 3 s.
func (s *Store) Close() error {
	if s.isClosing.Swap(true) {
		return nil
	}
	s.close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, turn := range s.turns { // Those that have begun end.
			turn <- struct{}{}
		}
		s.opening.Lock()
		defer s.opening.Unlock()
		if s.folder == nil {
			return
		}
		s.folder.close()
		for _, sh := range s.folder.shards {
			sh.file.Close() // or nothing, if it is nil
		}
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(3 * time.Second):
		return errHangs
	}
}

// errHangs says why a request or a Close has no answer.
var errHangs = errors.New("no answer in time: the host is busy, the disk hangs, or a process is stopped in the middle of a request")

// do makes a request. Under the kernel lock of the shard it reads the entries of the name, calls
// verb to change them, and writes what has changed, unless verb returns an error. Then it notifies
// the owners of other entries that have become holds, and of those that were broken. With makes,
// the folder, the session and the shard are made if they are missing.
//
// A request may hang, so it runs in a goroutine of its own. If ctx ends first, do returns, and the
// outcome is not known. The requests of a Store for the same shard are made one after the other. So
// the Release after such an Acquire waits for its end, and ends what it may have granted.
func do[T any](ctx context.Context, s *Store, st *state, makes bool, verb func(*state) (T, error)) (none T, err error) {
	switch {
	case s.closing.Err() != nil:
		return none, driver.ErrClosed
	case ctx.Err() != nil:
		return none, driver.NotApplied(ctx.Err())
	}
	hangs := func() error {
		return fmt.Errorf("%s: %w: %w", filepath.Join(s.dir, shardFile(st.number)), errHangs, ctx.Err())
	}
	select {
	case s.turns[st.number] <- struct{}{}:
	case <-s.closing.Done():
		return none, driver.ErrClosed
	case <-ctx.Done():
		return none, driver.NotApplied(hangs())
	}
	var result T
	request := func() error {
		f, own, err := s.currentFolder(makes)
		var info fs.FileInfo
		if err == nil {
			st.shard = &f.shards[st.number]
			info, err = st.shard.lock(makes)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && !makes:
			return nil // Nothing is held in a folder or a shard that is missing.
		case err != nil:
			return err
		}
		st.own, st.now, st.living = own, s.host.uptime(), map[string]bool{}
		if own != nil {
			st.living[own.id] = true
		}
		if err = driver.NotApplied(ctx.Err()); err == nil { // It may have waited for the lock.
			err = st.read(info)
		}
		if err == nil {
			result, err = verb(st)
		}
		isPromoted := func(e *entry) bool { return e.Token > st.held && e.Owner != st.hash }
		if slices.ContainsFunc(st.queue.Holds(), isPromoted) {
			st.bury() // The process of a place that has become a hold may be dead.
		}
		if err == nil {
			err = st.write()
		}
		if position := st.queue.Index(st.hash) + 1 - len(st.queue.Holds()); err == nil && own != nil && position > 0 {
			own.lookLater(st, position)
		}
		_ = setLock(st.shard.file, unlocked)
		if err != nil {
			return err
		}
		for _, e := range st.queue.Holds() {
			if isPromoted(e) {
				st.notify(e, e.Token)
			}
		}
		for i := range st.broken {
			st.notify(&st.broken[i], 0)
		}
		return nil
	}
	done := make(chan error, 1)
	go func() {
		err := request()
		<-s.turns[st.number]
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		if err = hangs(); len(done) > 0 { // The answer has come by then.
			err = <-done
		}
	}
	if err != nil {
		return none, err
	}
	return result, nil
}
