package filestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/olddriver/notices"
)

// Options change how a store is opened. The zero value and nil are the defaults.
type Options struct {
	// AllowNetwork opens a folder on a network file system, which is refused
	// otherwise. It is for file systems that are in fact local, such as some
	// FUSE ones: locks never reach beyond this host.
	AllowNetwork bool
}

// A Store keeps locks in a folder. See the package comment for what it promises.
// Its methods may be called from many goroutines at once. It must be closed.
type Store struct {
	*olddriver.Adapter
	engine *engine
}

// blockTokens is the greatest number of tokens of one grant.
const blockTokens = 64

func newStore(e *engine) *Store { return &Store{olddriver.Adapt(e, blockTokens), e} }

// An engine is a store of the second edition.
type engine struct {
	dir          string
	locksPath    string
	allowNetwork bool
	host         host
	calls        calls

	mu            sync.Mutex // guards folder and folderChecked; held while the folder is being opened
	folder        *folder    // kept open from request to request; nil before the first one
	folderChecked time.Time  // when the path last led to folder

	closed   atomic.Bool // set with mu locked
	sweeping atomic.Bool
	sweeps   sync.WaitGroup
	lifetime context.Context // ends with Close
	end      context.CancelFunc

	session session
	watcher watcher
	notices notices.Registry

	// tokens is the line of the tokens file as far as this Store knows it, nil before the first
	// grant. It is valid for this boot: the clock does not change, and the mark only grows.
	tokens atomic.Pointer[savedTokens]
}

var _ olddriver.Notifier = (*engine)(nil)

// New opens the store in a folder. Every process of this host that opens the
// same folder shares its locks. A folder that is missing is made when the first
// lock is taken, for this user alone.
//
// New returns an error that matches [driver.ErrUnsupported] if the folder is on
// a network file system and opts does not allow that.
func New(dir string, opts *Options) (*Store, error) {
	e, err := newEngine(dir, opts)
	if err != nil {
		return nil, err
	}
	return newStore(e), nil
}

// Dir returns the absolute path of the store's folder.
func (s *Store) Dir() string { return s.engine.dir }

// Session returns the file that represents this Store. It returns nil if the store is closed, or if
// the folder cannot be written, where no lock can be acquired either. As long as the file is open
// in any process, the holds acquired through this Store are not mistaken for those of a dead
// process.
//
// It is for programs that hand their locks to a child. A child that inherits the file
// ([os/exec.Cmd].ExtraFiles) keeps the holds in force until their TTL even if this process is
// killed. The file must not be closed, locked, unlocked or written. On Windows a child that
// inherits it keeps nothing.
func (s *Store) Session() *os.File { return s.engine.Session() }

func newEngine(dir string, opts *Options) (*engine, error) {
	h, err := thisHost()
	if err != nil {
		return nil, err
	}
	return openWithHost(h, dir, opts)
}

func openWithHost(h host, dir string, opts *Options) (*engine, error) {
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
	s := &engine{dir: dir, locksPath: filepath.Join(dir, locksFolder), allowNetwork: opts.AllowNetwork, host: h}
	if err := s.checkFolder(nil); err != nil {
		return nil, err
	}
	s.lifetime, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Guarantees implements [olddriver.Store].
func (s *engine) Guarantees() olddriver.Guarantees {
	return olddriver.Guarantees{
		Store:       "file",
		Scope:       olddriver.ScopeHost,
		Fencing:     true,
		HolderCrash: olddriver.RecoveryAtOnce,
		Restart:     olddriver.FateFreed,
		Failover:    olddriver.FateFreed, // The locks of a host cannot outlive it.
		Detached:    true,
		Shared:      true,
		Limited:     true,
		Lookup:      true,
		List:        true,
		Break:       true,
		Metadata:    true,
		Keep:        true,
	}
}

// Close implements [olddriver.Store].
func (s direct) Close() error {
	s.mu.Lock()
	wasClosed := s.closed.Swap(true)
	s.mu.Unlock()
	if wasClosed {
		return nil
	}
	s.end()
	s.sweeps.Wait()
	s.watcher.close()
	err := s.closeSession()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setFolder(nil)
	return err
}
