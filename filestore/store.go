package filestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	notices      notices.Registry

	// turns has a value while a request uses the kernel lock of that number.
	turns   [lockCount]chan struct{}
	closing chan struct{} // closed by Close

	mu      sync.Mutex // held while the folder is being opened
	folder  *folder    // kept open from request to request; nil before the first one
	checked time.Time  // when the path last led to folder
	running sync.WaitGroup
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
	if opts == nil {
		opts = &Options{}
	}
	if dir == "" {
		return nil, fmt.Errorf("%w: the store's folder has no name", driver.ErrInvalid)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, allowNetwork: opts.AllowNetwork, host: h, closing: make(chan struct{})}
	for i := range s.turns {
		s.turns[i] = make(chan struct{}, 1)
	}
	path := nearestExisting(dir)
	info, err := os.Stat(path)
	if err != nil {
		return nil, wrapErr("examine", path, err)
	}
	if err := s.checkFolder(path, info); err != nil {
		return nil, err
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
// killed. The file must not be closed, locked, unlocked or written. On Windows a child that
// inherits it keeps nothing.
func (s *Store) Session() *os.File {
	f, err := s.currentFolder(true)
	if err != nil {
		return nil
	}
	own, err := f.openSession(context.Background())
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
	return inTurn(ctx, s, fileName(req.Name), true, func(ctx context.Context, f *folder, file string) (res driver.Result, err error) {
		own, err := f.openSession(ctx)
		if err != nil {
			return res, err
		}
		data := newEntryData(&req, own.id, s.host.wall())
		err = f.update(ctx, file, req.Name, who, func(st *state) (err error) {
			res, err = st.acquire(ctx, &req, data)
			return err
		})
		if err != nil {
			return driver.Result{}, err
		}
		return res, nil
	})
}

// Renew implements [driver.Store]. Every name has a file of its own, so one entry may be renewed
// and the next one not.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries := make([]driver.Entry, len(reqs))
	var failure error
	for i, req := range reqs {
		var err error
		entries[i], err = s.renew(ctx, req)
		switch {
		case err != nil && len(reqs) > 1: // It stands for all, of which some may have been prolonged.
			failure = fmt.Errorf("of %d entries some have no answer: %v", len(reqs), err)
		case err != nil:
			failure = err
		}
	}
	if s.isClosed() {
		return nil, driver.ErrClosed
	}
	return entries, failure
}

func (s *Store) renew(ctx context.Context, req driver.RenewRequest) (driver.Entry, error) {
	who := newActor(req.Name, req.Owner)
	entry, err := inTurn(ctx, s, fileName(req.Name), false, func(ctx context.Context, f *folder, file string) (entry driver.Entry, err error) {
		own, err := f.openSession(ctx)
		if err != nil {
			return entry, err
		}
		err = f.update(ctx, file, req.Name, who, func(st *state) error {
			entry = st.renew(who.hash, req.Token, req.TTL+clockStep, own.id)
			return nil
		})
		if err != nil {
			return driver.Entry{}, err
		}
		return entry, nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Entry{State: driver.Lost}, nil
	}
	return entry, err
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	who := newActor(req.Name, req.Owner)
	if req.Keep > 0 {
		req.Keep += clockStep
	}
	ended, err := inTurn(ctx, s, fileName(req.Name), false, func(ctx context.Context, f *folder, file string) (ended bool, err error) {
		err = f.update(ctx, file, req.Name, who, func(st *state) error {
			ended = st.release(who.hash, req.Keep)
			return nil
		})
		return ended && err == nil, err
	})
	return ended, ifThere(err)
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	records, err := inTurn(ctx, s, fileName(name), false, func(ctx context.Context, f *folder, file string) (records []driver.Record, err error) {
		err = f.update(ctx, file, name, actor{}, func(st *state) error {
			records = st.breakHolds(token)
			return nil
		})
		if err != nil {
			return nil, err
		}
		return records, nil
	})
	return records, ifThere(err)
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	records, err := inTurn(ctx, s, fileName(name), false, func(ctx context.Context, f *folder, file string) ([]driver.Record, error) {
		return f.lookup(ctx, file, name)
	})
	return records, ifThere(err)
}

// lookup returns the holds and keeps in a file, which is that of a name, or of any if name is "".
// What has ended is taken out of the file.
func (f *folder) lookup(ctx context.Context, file, name string) (records []driver.Record, err error) {
	err = f.update(ctx, file, name, actor{}, func(st *state) error {
		records = st.holds()
		return nil
	})
	return records, err
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		files, err := inTurn(ctx, s, "", false, func(_ context.Context, f *folder, _ string) ([]string, error) { return f.names() })
		for _, file := range files {
			if !isNameFile(file) || !mayMatchPrefix(file, prefix) {
				continue
			}
			var records []driver.Record
			records, err = inTurn(ctx, s, file, false, func(ctx context.Context, f *folder, file string) ([]driver.Record, error) {
				return f.lookup(ctx, file, "")
			})
			if err != nil && !errors.Is(err, driver.ErrCorrupt) {
				break
			}
			if err != nil && !yield(driver.Record{}, err) {
				return
			}
			err = nil
			for _, rec := range records {
				if strings.HasPrefix(rec.Name, prefix) && !yield(rec, nil) {
					return
				}
			}
		}
		if err := ifThere(err); err != nil {
			yield(driver.Record{}, err)
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

// errCloseHangs is the error of a Close that does not return.
var errCloseHangs = errors.New("the disk hangs, and the store was not closed in time")

// Close implements [driver.Store]. The entries of this Store end with it, save those that are
// detached. If the disk hangs, Close returns an error after 3 s.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.isClosed() {
		s.mu.Unlock()
		return nil
	}
	close(s.closing)
	s.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.running.Wait()
		if s.folder != nil { // It does not change any more.
			s.folder.close()
			for _, file := range s.folder.locks {
				file.Close() // or nothing, if it is nil
			}
		}
	}()
	timeout := time.NewTimer(3 * time.Second)
	defer timeout.Stop()
	select {
	case <-closed:
		return nil
	case <-timeout.C:
		return errCloseHangs
	}
}

func (s *Store) isClosed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// inTurn makes a request that uses the kernel lock of a file, or of none if file is "". The
// requests for a file begin in the order in which they were made, each when the one before it has
// ended: so a Release ends what an Acquire before it has granted late. A request has a goroutine of
// its own, which waits for the disk for as long as that hangs.
//
// inTurn returns when ctx ends: what becomes of the request is then not known. The deadline of the
// request is a little earlier, so that it can report what it waited for.
func inTurn[T any](
	ctx context.Context, s *Store, file string, create bool, request func(context.Context, *folder, string) (T, error),
) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if s.isClosed() {
		return none, driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return none, driver.NotApplied(err)
	}
	turn := make(chan struct{}, 1)
	if file != "" {
		turn = s.turns[lockOf(file)]
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return none, driver.NotApplied(fmt.Errorf("a request before this one has not ended: %w", ctx.Err()))
	case <-s.closing:
		return none, driver.ErrClosed
	}
	results := make(chan result, 1)
	isOpen := s.start(func() {
		callCtx, cancel := context.WithCancel(ctx)
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			callCtx, cancel = context.WithTimeout(ctx, left-min(left/4, 100*time.Millisecond))
		}
		defer cancel()
		r := result{err: os.ErrClosed}
		for errors.Is(r.err, os.ErrClosed) && !s.isClosed() { // The folder was replaced.
			var f *folder
			if f, r.err = s.currentFolder(create); r.err == nil {
				r.value, r.err = request(callCtx, f, file)
			}
		}
		if errors.Is(r.err, os.ErrClosed) {
			r.err = driver.ErrClosed
		}
		<-turn
		results <- r
	})
	if !isOpen {
		<-turn
		return none, driver.ErrClosed
	}
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-results: // at the same moment
		return r.value, r.err
	default:
		return none, ctx.Err()
	}
}

// start runs f in a goroutine that Close waits for. It reports false if the Store is closed.
func (s *Store) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return false
	}
	s.running.Go(f)
	return true
}

// ifThere returns err, or nil if it says that the folder is missing: nothing is held in it.
func ifThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// newActor returns the actor of a request. Only the hash of the owner leaves the process.
func newActor(name, owner string) actor {
	sum := sha256.Sum256([]byte(owner))
	return actor{name: name, owner: owner, hash: hex.EncodeToString(sum[:])}
}
