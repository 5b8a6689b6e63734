package holdfast

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Client takes locks from a store. It is safe for use by many goroutines at once; a program
// usually needs one for each store. Two goroutines of one Client exclude each other just as two
// hosts do.
//
// A Client runs a goroutine for each request that it makes by itself (a renewal, of many locks, or
// a release that is repeated), and for each lock in the answer to a renewal. A context that is
// passed to it must not call it from its methods.
//
// The zero Client has no store: its methods return [ErrInvalid].
type Client struct {
	store      driver.Store
	guarantees driver.Guarantees
	ownsStore  bool   // Close closes the store, too
	config     Config // with its defaults
	watched    bool   // there is a log or a hook for events
	clock      clock
	configErr  error // returned by every method if the Config is invalid

	closing     chan struct{}  // closed when Close begins
	activeCalls sync.WaitGroup // calls in progress, and their background work
	stopNotices func()         // ends the notices of the store

	mu         sync.Mutex // guards all below, and fields of the leases
	closed     bool
	changed    sync.Cond             // of mu: a request of a lease, or its release, has ended
	queues     map[string]*nameQueue // by name in the store
	spareQueue *nameQueue            // to be used again
	schedule   schedule
}

// New returns a Client of a store that the caller has made and will close. New sends nothing and
// starts no goroutine. A nil config means the defaults. If a field of config is out of bounds,
// every method of the Client returns that error, which matches [ErrInvalid]. New panics if store is
// nil.
func New(store driver.Store, config *Config) *Client {
	if store == nil {
		panic("holdfast: New: store is nil")
	}
	if config == nil {
		config = &Config{}
	}
	c := &Client{
		store:       store,
		guarantees:  store.Guarantees(),
		config:      *config,
		watched:     config.Logger != nil || config.Hooks.Event != nil,
		closing:     make(chan struct{}),
		stopNotices: func() {},
		queues:      map[string]*nameQueue{},
	}
	o := &c.config
	o.Holder, o.TTL = cmp.Or(o.Holder, defaultHolder()), cmp.Or(o.TTL, DefaultTTL)
	o.Metadata = maps.Clone(o.Metadata) // the caller may change the original
	o.Backoff.Min = cmp.Or(o.Backoff.Min, 2*time.Millisecond)
	o.Backoff.Max = cmp.Or(o.Backoff.Max, max(o.Backoff.Min, 250*time.Millisecond))
	o.RequestTimeout = min(cmp.Or(o.RequestTimeout, 3*time.Second), driver.MaxTTL)
	o.MaxOutage = min(cmp.Or(o.MaxOutage, 10*time.Second), driver.MaxTTL)
	o.LocalTurn = min(cmp.Or(o.LocalTurn, 10*time.Millisecond), driver.MaxTTL)
	c.configErr = config.validate(o.Holder)
	c.changed.L = &c.mu
	c.clock.base, c.clock.useBootClock = time.Now().Add(-1), !c.guarantees.InProcess && suspendedTime != nil
	if c.clock.useBootClock {
		c.clock.suspendedBase = suspendedTime()
	}
	if store, ok := c.store.(driver.Notifier); ok {
		c.stopNotices = store.Notify(c.onNotice)
	}
	return c
}

// String returns the store and the holder, for messages.
func (c *Client) String() string {
	return fmt.Sprintf("holdfast client %q of the %s store", c.config.Holder, c.guarantees.Store)
}

// GoString is String: a Client that is in use cannot be read field by field.
func (c *Client) GoString() string { return c.String() }

// Store returns the Client's store.
func (c *Client) Store() driver.Store { return c.store }

// Holder returns the public name under which the Client's locks are shown.
func (c *Client) Holder() string { return c.config.Holder }

// Guarantees returns what the Client's store promises.
func (c *Client) Guarantees() driver.Guarantees { return c.guarantees }

// ReleaseAll releases every lock that the Client holds. It returns when all of them are free, or
// not confirmed within the bounds of Lock.Release. The locks' contexts end with ErrReleased, all of
// them before the first lock is free. A lock under which Do runs work is released when the work has
// returned, or at the lock's deadline if the work is still running by then: work must not call
// ReleaseAll itself, which would wait for that deadline. The Client can be used further.
func (c *Client) ReleaseAll() error {
	return c.releaseLeases(&ErrReleased)
}

// releaseLeases ends the contexts of all locks with the reason, and releases them. A lease with
// work under Do lasts until the Do releases it, or until its deadline: it is not renewed any more.
// releaseLeases waits for these, and for leases that another call is releasing.
func (c *Client) releaseLeases(reason *error) error {
	var idle, others []*lease
	c.mu.Lock()
	now := c.clock.now()
	for l := range c.leases {
		switch works := slices.ContainsFunc(l.locks, func(lock *Lock) bool { return lock.working }); {
		case l.state < held: // No caller has it.
			continue
		case works && l.isHeld():
			l.locks = slices.DeleteFunc(l.locks, func(lock *Lock) bool {
				lock.endContext(reason)
				return !lock.working
			})
			l.state = winding
			l.checkAt(now, l.due)
		case l.isHeld():
			l.end(reason)
			idle = append(idle, l)
			continue
		}
		others = append(others, l)
	}
	c.mu.Unlock()
	errs := []error{releaseEach(idle, func(l *lease) error {
		c.mu.Lock()
		return l.giveBack(0, false)
	})}
	for _, l := range others {
		errs = append(errs, l.awaitFinish())
	}
	return errors.Join(errs...)
}

// Locks returns the locks that the Client holds at this moment, sorted by name: for each hold the
// Lock of its acquisition, of a Reentrant hold the first that was not released. Those that were
// adopted, belong to a [LockSet], or have work under Do are among them.
func (c *Client) Locks() []*Lock {
	var locks []*Lock
	c.mu.Lock()
	for l := range c.leases {
		if l.isHeld() {
			locks = append(locks, l.locks[0])
		}
	}
	c.mu.Unlock()
	slices.SortFunc(locks, func(a, b *Lock) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.Token(), b.Token()))
	})
	return locks
}

// Close ends the Client: waiting acquisitions return ErrClosed, and every lock is released as by
// [Client.ReleaseAll]. The contexts of the locks end with an error that matches ErrReleased and
// ErrClosed. A Client made by [Open] closes its store as well. When Close returns, nothing that the
// Client started runs on. Close is delayed at most until the deadlines of the locks with work under
// Do, and by a few request timeouts if the store hangs. The error names the locks with an
// unconfirmed release. A second Close returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed || c.store == nil {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.closing)     // Holds are checked until there are none.
	c.activeCalls.Add(1) // for what ends a lease, as long as there are leases that have not ended
	c.mu.Unlock()

	reason := fmt.Errorf("%w: the client was %w", ErrReleased, ErrClosed)
	err := c.releaseLeases(&reason)
	if t := c.schedule.timer; t != nil && t.Stop() {
		c.activeCalls.Done() // checkLeases is not called any more.
	}
	c.activeCalls.Done()
	c.activeCalls.Wait()
	c.stopNotices()
	if c.ownsStore {
		err = errors.Join(err, c.store.Close())
	}
	return err
}

// begin registers a call that Close waits for. It checks the names of its locks. Unless its options
// are nil, it completes them by the defaults, and checks them.
func (c *Client) begin(ctx context.Context, o *Options, names ...string) error {
	for _, name := range names {
		err := checkText("name", name)
		if err == nil && c.config.Prefix != "" {
			err = checkText("name with prefix", c.config.Prefix+name)
		}
		if err != nil {
			return err
		}
	}
	if o != nil {
		o.TTL = cmp.Or(o.TTL, c.config.TTL, DefaultTTL) // the zero Client has none
		if o.Metadata == nil {
			o.Metadata = c.config.Metadata
		} else {
			o.Metadata = maps.Clone(o.Metadata) // the caller may change the original
		}
		if err := o.validate(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.configErr != nil:
		return c.configErr
	case ctx == nil:
		return errNoContext
	case ctx.Err() != nil:
		return ctx.Err()
	case c.store == nil:
		return fmt.Errorf("%w: a Client is made by New or Open", ErrInvalid)
	case c.closed:
		return ErrClosed
	}
	c.activeCalls.Add(1)
	return nil
}

// stripPrefix returns the name of a lock without the prefix that it has in the store.
func (c *Client) stripPrefix(full string) string { return full[len(c.config.Prefix):] }

// logWarning logs an event that an operator may want to act upon.
func (c *Client) logWarning(ctx context.Context, message, name string, err error) {
	if c.config.Logger != nil {
		c.config.Logger.WarnContext(ctx, message, "name", name, "store", c.guarantees.Store, "err", err)
	}
}

// defaultHolder returns host/pid/random.
func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil || !printable(host) || len(host) > 200 {
		host = "localhost"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}

// Open makes a store from a URL and returns a Client of it. The package of the store must be linked
// into the program; importing it registers its URL scheme, as with the drivers of database/sql:
//
//	import _ "github.com/holdfast-go/holdfast/filestore"
//
// The package comment of each store lists what a URL may contain. A scheme or a parameter that is
// not known, and a config that is out of bounds, is an error that matches [ErrInvalid]. Closing the
// Client closes the store.
func Open(ctx context.Context, rawURL string, config *Config) (*Client, error) {
	u, err := url.Parse(rawURL)
	if err != nil { // It quotes the URL, and with it perhaps a password.
		_, err = driver.Lookup("")
		return nil, fmt.Errorf("holdfast: open store: the URL cannot be read: %w; in a password, characters other than letters and digits are written as %%40 for @", err)
	}
	open, err := driver.Lookup(u.Scheme)
	if err != nil {
		return nil, fmt.Errorf("holdfast: open store: %w", err)
	}
	if ctx == nil {
		return nil, fmt.Errorf("holdfast: open %s store: %w", u.Scheme, errNoContext)
	}
	store, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("holdfast: open %s store: %w", u.Scheme, storeError(ctx, err))
	}
	c := New(store, config)
	c.ownsStore = true
	if c.configErr != nil {
		_ = store.Close() // it was not used
		return nil, fmt.Errorf("holdfast: open %s store: %w", u.Scheme, c.configErr)
	}
	return c, nil
}
