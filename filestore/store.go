package filestore

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
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
	dir     string
	host    host
	closed  atomic.Bool
	session session
	tokens  tokens
	watcher watcher
	sweeper sweeper
}

var _ driver.Store = (*Store)(nil)

// Open opens the store in a folder. Every process of this host that opens the
// same folder shares its locks. A folder that is missing is made when the first
// lock is taken, for this user alone.
//
// Open returns an error that matches [driver.ErrUnsupported] if the folder is on
// a network file system and opts does not allow that.
func Open(dir string, opts *Options) (*Store, error) {
	h, err := thisHost()
	if err != nil {
		return nil, err
	}
	return openOn(h, dir, opts)
}

func openOn(h host, dir string, opts *Options) (*Store, error) {
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
	kind, err := onNetwork(existing(dir))
	if err != nil {
		return nil, fault("examine", dir, err)
	}
	if kind != "" && !opts.AllowNetwork {
		return nil, fmt.Errorf("%w: %s is on a network file system (%s), where file locks cannot be trusted: "+
			"choose a local folder, or allow it with allow_network=true", driver.ErrUnsupported, dir, kind)
	}
	s := &Store{dir: dir, host: h}
	s.sweeper.ctx, s.sweeper.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Dir returns the absolute path of the store's folder.
func (s *Store) Dir() string { return s.dir }

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:       "file",
		Scope:       driver.ScopeHost,
		Fencing:     true,
		HolderCrash: driver.RecoveryAtOnce,
		Restart:     driver.FateFreed,
		Failover:    driver.FateFreed, // The locks of a host cannot outlive it.
		Push:        canWatch,
		Detached:    true,
		Lookup:      true,
		List:        true,
		Break:       true,
		Metadata:    true,
		Keep:        true,
	}
}

// Close ends the session of this Store and its watches. Holds that were not
// released stay until their TTL, since this process may still believe in them.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.sweeper.stop()
	s.watcher.close()
	return s.endSession()
}

// checkLockName checks what the JSON of a record depends on.
func checkLockName(name string) error {
	if name == "" || len(name) > driver.MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("%w: a name is 1 to %d bytes of UTF-8", driver.ErrInvalid, driver.MaxName)
	}
	return nil
}
