package holdfast

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Client takes locks from a store. It is safe for use by many goroutines at
// once; a program usually needs one for each store. Two goroutines of one
// Client exclude each other just as two hosts do.
//
// A Client runs one goroutine, however many locks it holds, from its first
// acquisition until Close.
type Client struct {
	store     driver.Store
	can       driver.Guarantees
	owns      bool // Close closes the store, too
	inline    bool // the store's calls never block: no guard around them
	holder    string
	prefix    string
	options   Options
	backoff   Backoff
	timeout   time.Duration
	outage    time.Duration
	log       *slog.Logger
	hooks     Hooks
	clock     clock
	owners    *ownerSource
	misconfig error // what Acquire reports if the Config is invalid

	closing chan struct{}  // closed when Close begins
	active  sync.WaitGroup // calls under way, and what they left to do

	mu       sync.Mutex // guards all below, and the scheduling of holds
	closed   bool
	slots    map[string]*slot
	adopted  map[*hold]struct{} // holds by tickets, which have no slot
	schedule schedule

	deafen func() // ends the alarms of the store
}

// New returns a Client of a store that the caller has made and will close.
// Nothing is dialled, nothing is started. A nil config means the defaults; one
// that is out of bounds is reported by the first acquisition.
func New(store driver.Store, config *Config) *Client {
	if config == nil {
		config = &Config{}
	}
	can := store.Guarantees()
	c := &Client{
		store:   store,
		can:     can,
		inline:  can.Blocking == driver.BlocksNever,
		holder:  config.Holder,
		prefix:  config.Prefix,
		options: config.Options,
		backoff: config.Backoff.withDefaults(can),
		timeout: config.RequestTimeout,
		outage:  config.Outage,
		log:     config.Logger,
		hooks:   config.Hooks,
		owners:  newOwnerSource(),
		closing: make(chan struct{}),
		slots:   map[string]*slot{},
		adopted: map[*hold]struct{}{},
	}
	c.clock.start(can.Blocking != driver.BlocksNever)
	if c.holder == "" {
		c.holder = defaultHolder()
	}
	if c.timeout <= 0 {
		c.timeout = 3 * time.Second
	}
	if c.outage <= 0 {
		c.outage = 10 * time.Second
	}
	c.schedule.wake = make(chan struct{}, 1)
	c.misconfig = checkText("holder", c.holder)
	if c.misconfig == nil && !printable(c.prefix) {
		c.misconfig = fmt.Errorf("%w: prefix is not UTF-8 text without control characters", ErrInvalid)
	}
	c.listen()
	return c
}

// Store returns the store that the Client works on.
func (c *Client) Store() driver.Store { return c.store }

// Holder returns the public name under which the Client's locks are shown.
func (c *Client) Holder() string { return c.holder }

// Guarantees says what the Client's store promises.
func (c *Client) Guarantees() driver.Guarantees { return c.can }

// ReleaseAll releases every lock that the Client holds and returns when all of
// them are free, or not confirmed within the bounds of Lock.Release. The locks'
// contexts end with ErrReleased. The Client can be used on.
func (c *Client) ReleaseAll() error {
	holds := c.holds()
	for _, h := range holds { // all work ends before the first lock is free
		if h.err() == nil {
			h.over(&ErrReleased)
		}
	}
	errs := make([]error, len(holds))
	c.each(len(holds), func(i int) { errs[i] = holds[i].release() })
	return errors.Join(errs...)
}

// holds are all that the Client has.
func (c *Client) holds() []*hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	holds := slices.Collect(maps.Keys(c.adopted))
	for _, s := range c.slots {
		if s.hold != nil {
			holds = append(holds, s.hold)
		}
	}
	return holds
}

// Close ends the Client: waiting acquisitions return ErrClosed, every lock is
// released, and the Client's goroutine ends. A Client made by [Open] closes its
// store as well. When Close returns, nothing that the Client started runs on; a
// store that hangs can delay it by a few request timeouts, no longer.
// The error names the locks whose release was not confirmed. A second Close
// returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.closing)
	c.mu.Unlock()

	c.deafen()
	err := c.ReleaseAll()
	c.active.Wait()
	if c.owns {
		err = errors.Join(err, c.store.Close())
	}
	return err
}

// begin registers a call that Close must wait for.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.active.Add(1)
	return nil
}

// full turns a caller's name into the store's.
func (c *Client) full(name string) (string, error) {
	if c.misconfig != nil {
		return "", c.misconfig
	}
	if err := checkText("name", name); err != nil {
		return "", err
	}
	if c.prefix == "" {
		return name, nil
	}
	full := c.prefix + name
	return full, checkText("name with prefix", full)
}

// strip turns the store's name into the caller's.
func (c *Client) strip(full string) string { return full[len(c.prefix):] }

// warn logs what a person may want to act upon.
func (c *Client) warn(ctx context.Context, what, name string, err error) {
	if c.log != nil {
		c.log.WarnContext(ctx, what, "name", name, "store", c.can.Store, "err", err)
	}
}

func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil || !printable(host) || len(host) > 200 {
		host = "localhost"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}
