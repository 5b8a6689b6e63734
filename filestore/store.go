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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/notices"
)

// Options change how a store is opened. The zero value and nil are the defaults.
type Options struct {
	// AllowNetwork opens a folder on a network file system, which is refused
	// otherwise. It is for file systems that are in fact local, such as some
	// FUSE ones: locks never reach beyond this host.
	AllowNetwork bool
}

// A Store keeps locks in a folder. See the package comment for what it promises. It implements
// [driver.Store] and [driver.Notifier]. Its methods may be called from many goroutines at once. It
// must be closed.
type Store struct {
	dir          string
	allowNetwork bool
	host         host
	lookStep     time.Duration
	notices      notices.Mailbox

	// turns has a value while a request uses the shard of that number, and for good when the Store
	// is closed.
	turns     [shardCount]chan struct{}
	isClosing atomic.Bool
	closing   context.Context // ends with Close
	close     context.CancelFunc

	opening sync.Mutex // held while the folder is opened, which lasts as long as the disk hangs
	folder  *folder    // kept open from request to request; nil before the first one
}

var _ driver.Notifier = (*Store)(nil)

// New opens the store in a folder. Every process of this host that opens the
// same folder shares its locks. A folder that is missing is made when the first
// lock is taken, for this user alone.
//
// New returns an error that matches [driver.ErrUnsupported] if the folder is on
// a network file system and opts does not allow that, and one that matches
// [driver.ErrInvalid] if other users may write it.
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
	path := nearestExisting(dir)
	info, err := os.Stat(path)
	if err == nil {
		err = s.checkFolder(path, info)
	}
	if err != nil {
		return nil, wrapErr("examine", path, err)
	}
	return s, nil
}

// Dir returns the absolute path of the store's folder.
func (s *Store) Dir() string { return s.dir }

// Session returns the file that represents this Store. It returns nil if the store is closed, or if
// the folder cannot be written, where no lock can be acquired either. As long as the file is open
// in any process, the holds acquired through this Store are not mistaken for those of a dead
// process.
//
// It is for programs that hand their locks to a child. A child that inherits the file
// ([os/exec.Cmd].ExtraFiles) keeps the holds in force until their TTL even if this process is
// killed. The file must not be closed, read or written. On Windows a child that
// inherits it keeps nothing.
func (s *Store) Session() *os.File {
	_, own, err := s.currentFolder(true)
	if err != nil {
		return nil
	}
	return own.file
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	who := newActor(req.Name, req.Owner)
	req.Owner = who.hash
	req.TTL += clockStep
	if req.Place > 0 {
		req.Place += clockStep
	}
	return do(ctx, s, who, true, func(st *state) (driver.Result, error) { return st.acquire(&req) })
}

// Renew implements [driver.Store]. One entry may be renewed and the next one not.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries, errs := make([]driver.Entry, len(reqs)), make([]error, len(reqs))
	var group sync.WaitGroup
	for i, req := range reqs { // One that is held up holds up no other.
		group.Go(func() {
			entries[i], errs[i] = do(ctx, s, newActor(req.Name, req.Owner), true, func(st *state) (driver.Entry, error) {
				return st.renew(req.Token, req.TTL+clockStep), nil
			})
		})
	}
	group.Wait()
	if s.isClosed() {
		return nil, driver.ErrClosed
	}
	err := cmp.Or(errs...)
	if err != nil && len(reqs) > 1 { // It stands for all, of which some may have been prolonged.
		err = fmt.Errorf("of %d entries some have no answer: %v", len(reqs), err)
	}
	return entries, err
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if req.Keep > 0 {
		req.Keep += clockStep
	}
	return do(ctx, s, newActor(req.Name, req.Owner), false, func(st *state) (bool, error) {
		ended, _ := st.queue.Release(st.who.hash, req.Keep, st.now)
		return ended, nil
	})
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return do(ctx, s, anyone(name), false, func(st *state) ([]driver.Record, error) { return st.breakHolds(token), nil })
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return do(ctx, s, anyone(name), false, (*state).holds)
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for i := range shardCount {
			if !s.listShard(ctx, i, prefix, yield) {
				return
			}
		}
	}
}

// listShard lists the names in a shard that begin with prefix. It reports whether to go on.
func (s *Store) listShard(ctx context.Context, number int, prefix string, yield func(driver.Record, error) bool) bool {
	names, err := do(ctx, s, actor{shard: number}, false, (*state).names)
	if err != nil {
		return yield(driver.Record{}, err) && errors.Is(err, driver.ErrCorrupt)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		records, err := s.Lookup(ctx, name)
		if err != nil && (!yield(driver.Record{}, err) || !errors.Is(err, driver.ErrCorrupt)) {
			return false
		}
		for _, rec := range records {
			if !yield(rec, nil) {
				return false
			}
		}
	}
	return true
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

// Close implements [driver.Store]. The entries of this Store end with it, save those that are
// detached holds. If the disk hangs, Close returns an error after 3 s.
func (s *Store) Close() error {
	if s.isClosing.Swap(true) {
		return nil
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.end()
		s.opening.Lock() // The folder does not change any more.
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

// end lets no request begin any more, and waits for those that have begun.
func (s *Store) end() {
	s.close()
	for _, turn := range s.turns {
		turn <- struct{}{}
	}
}

func (s *Store) isClosed() bool { return s.closing.Err() != nil }

// errHangs says why a request takes longer than microseconds.
var errHangs = errors.New("the disk hangs, or a process is stopped in the middle of a request")

// do makes a request, and with makes what is missing for it. It may wait for the disk, or for a
// process that is stopped, and so is made on a goroutine of its own. If it has not begun when ctx
// ends it changes nothing. Otherwise what becomes of it is not known. The requests that use the
// same shard are made one after the other: so a Release ends what an Acquire before it has granted
// late.
func do[T any](ctx context.Context, s *Store, who actor, makes bool, verb func(*state) (T, error)) (none T, err error) {
	if err := ctx.Err(); err != nil {
		return none, driver.NotApplied(err)
	}
	var begun atomic.Bool // or it never will
	begin := func() bool { return begun.CompareAndSwap(false, true) }
	request := func() (result T, err error) {
		select {
		case s.turns[who.shard] <- struct{}{}:
			defer func() { <-s.turns[who.shard] }()
		case <-ctx.Done():
			return none, driver.NotApplied(ctx.Err())
		case <-s.closing.Done():
			return none, driver.ErrClosed
		}
		f, own, err := s.currentFolder(makes)
		if err == nil {
			err = f.update(own, who, makes, begin, func(st *state) (err error) {
				result, err = verb(st)
				return err
			})
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && !makes:
			return none, nil // Nothing is held in a folder or a shard that is missing.
		case err != nil:
			return none, err
		}
		return result, nil
	}
	type answer struct {
		result T
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		result, err := request()
		done <- answer{result, err}
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
	}
	if begin() {
		return none, driver.NotApplied(fmt.Errorf("cannot lock %s: %w: %w",
			filepath.Join(s.dir, shardFile(who.shard)), errHangs, ctx.Err()))
	}
	return none, ctx.Err()
}
