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
	dir          string
	locksPath    string
	allowNetwork bool
	host         host
	closed       atomic.Bool
	detached     driver.Store // makes the requests, since the disk may hang

	folders folderCache
	session session
	tokens  tokenState
	watcher watcher
	sweeper sweeper
}

var _ driver.Store = (*Store)(nil)

// New opens the store in a folder. Every process of this host that opens the
// same folder shares its locks. A folder that is missing is made when the first
// lock is taken, for this user alone.
//
// New returns an error that matches [driver.ErrUnsupported] if the folder is on
// a network file system and opts does not allow that.
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
	kind, err := networkNameOf(nearestExisting(dir))
	if err != nil {
		return nil, wrapErr("examine", dir, err)
	}
	s := &Store{dir: dir, locksPath: filepath.Join(dir, locksFolder), allowNetwork: opts.AllowNetwork, host: h}
	if kind != "" && !s.allowNetwork {
		return nil, s.refuseNetwork(kind, nil)
	}
	s.sweeper.ctx, s.sweeper.cancel = context.WithCancel(context.Background())
	s.detached = driver.Detach(direct{s})
	return s, nil
}

// refuseNetwork returns the error for a folder on a network file system. If err is not nil, the
// file system is not known, and refuseNetwork returns that error.
func (s *Store) refuseNetwork(kind string, err error) error {
	if err != nil {
		return driver.NotApplied(wrapErr("examine", s.dir, err))
	}
	return fmt.Errorf("%w: %s is on a network file system (%s), where file locks cannot be trusted: "+
		"choose a local folder, or allow it with allow_network=true", driver.ErrUnsupported, s.dir, kind)
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

// Close ends the session of this Store and its watches. Holds that were not released stay until
// their TTL, since this process may still rely on them. If the disk hangs, Close returns an error
// after 3 s.
func (s *Store) Close() error { return s.detached.Close() }

// Close implements [driver.Store].
func (s direct) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.sweeper.stopAndWait()
	s.watcher.close()
	err := s.closeSession()
	s.folders.close()
	return err
}

// checkLockName checks the properties that the JSON of a record depends on.
func checkLockName(name string) error {
	if name == "" || len(name) > driver.MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("%w: a name is 1 to %d bytes of UTF-8", driver.ErrInvalid, driver.MaxName)
	}
	return nil
}
