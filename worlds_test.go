package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/quorumstore"
)

const (
	worldSpan  = 4 * time.Minute
	worldDelay = 2 * time.Second  // of a request, a reply or a notice, at most
	worldTTL   = 10 * time.Second // the greatest of a hold, with Extend and ReleaseKeep
	worldStuck = 30 * time.Second // how long a name may be free while somebody waits for it
)

// Goroutines of several Clients do everything that a Client can do, at random moments, over a
// network that loses, delays and doubles. TEST_SEED runs one world again, TEST_WHOLE a thousand of
// them. The order of what happens in one moment is not part of the seed.
func TestWorlds(t *testing.T) {
	worlds := 100
	if os.Getenv("TEST_WHOLE") != "" {
		worlds = 1000
	} else if testing.Short() {
		worlds = 10
	}
	for name, open := range map[string]func() driver.Store{
		"memory": func() driver.Store { return memstore.New() }, "quorum": func() driver.Store { return newQuorumView() },
	} {
		worlds := worlds
		if name == "quorum" && worlds == 100 {
			worlds = 20 // Each has thousands of requests to nodes.
		}
		t.Run(name, func(t *testing.T) { testWorlds(t, open, worlds, rand.Uint64()>>1) })
	}
}

// A quorumView is a quorum of memory stores, as it is for one that no network separates from them.
type quorumView struct {
	*quorumstore.Store
	nodes []driver.Store
}

func newQuorumView() *quorumView {
	nodes := []driver.Store{memstore.New(), memstore.New(), memstore.New()}
	return &quorumView{quorumstore.New(nodes, nil), nodes}
}

// connect returns a store of the same nodes behind a network.
func (v *quorumView) connect(fault faultstore.Fault) driver.Store {
	var nodes []driver.Store
	for _, node := range v.nodes {
		net := faultstore.Wrap(node)
		for _, op := range requests {
			net.Set(op, fault)
		}
		nodes = append(nodes, net)
	}
	return quorumstore.New(nodes, &quorumstore.Options{Timeout: 300 * ms})
}

var requests = []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release, faultstore.Lookup, faultstore.Break}

// testWorlds runs worlds on stores that open returns, with the seeds from seed on.
func testWorlds(t *testing.T, open func() driver.Store, worlds int, seed uint64) {
	if text := os.Getenv("TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		worlds = 1
	}
	for i := range worlds {
		seed := seed + uint64(i)
		if violations := runWorld(t, open, seed); len(violations) > 0 {
			t.Fatalf("TEST_SEED=%d: %d violations:\n%s", seed, len(violations), strings.Join(violations[:min(len(violations), 5)], "\n"))
		}
	}
}

// A world is the Clients and goroutines of one store.
type world struct {
	store   driver.Store   // without faults
	opened  []driver.Store // of Clients of a quorum
	calm    bool           // no request and no notice is lost or late
	clients [4]atomic.Pointer[holdfast.Client]

	mu         sync.Mutex
	names      map[string]*worldName
	violations []string
}

// A worldName is what the world knows of one name.
type worldName struct {
	holds               []*worldHold
	blocks              map[int64]int // how many tokens each entry has, by the first
	broken              []worldBreak
	seen                map[int64]bool // the tokens of holds
	exclusive, greatest int64          // the greatest token of an exclusive hold, and of any
	waiting, returned   int            // calls of Acquire that are under way, and that have returned
}

// A worldHold is a Lock, a LockSet, or a keep.
type worldHold struct {
	handle interface {
		Err() error
		Deadline() time.Time
	}
	token int64
	limit int
	kept  time.Time // the end of a keep
}

// A worldBreak is a break of an entry with tokens from first to last.
type worldBreak struct {
	first, last int64
	at          time.Time
}

func runWorld(t *testing.T, open func() driver.Store, seed uint64) (violations []string) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{store: open(), calm: seed%8 == 0, names: map[string]*worldName{}}
		for _, name := range []string{"a", "b", "c"} {
			w.names[name] = &worldName{blocks: map[int64]int{}, seen: map[int64]bool{}}
		}
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range w.clients {
			w.clients[i].Store(w.newClient(random))
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := time.Now().Add(worldSpan)
		var group sync.WaitGroup
		for i := range 5 * len(w.clients) {
			p := &player{world: w, ctx: ctx, client: &w.clients[i%len(w.clients)], Rand: rand.New(rand.NewPCG(seed, uint64(i+1)))}
			group.Go(func() {
				for time.Now().Before(over) {
					p.play()
				}
			})
		}
		ended := make(chan struct{})
		go func() { group.Wait(); close(ended) }()
		w.watch(ended, over.Add(2*time.Minute))
		cancel()
		<-ended
		for i := range w.clients {
			w.check("Close", w.clients[i].Load().Close(), holdfast.ErrUnavailable, holdfast.ErrLost)
		}
		for _, s := range w.opened {
			w.check("Close of a store", s.Close())
		}
		time.Sleep(worldTTL + 3*worldDelay)
		for rec, err := range w.store.List(context.Background(), "") {
			w.violate("%v is left behind, %v", rec, err)
		}
		w.check("Close of the store", w.store.Close())
		violations = w.violations
	})
	return violations
}

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(format, args...)
}

func (w *world) violateLocked(format string, args ...any) {
	w.violations = append(w.violations, time.Now().Format("04:05.000000 ")+fmt.Sprintf(format, args...))
}

// check finds errors that a call may not return.
func (w *world) check(call string, err error, allowed ...error) {
	if err != nil && !slices.ContainsFunc(allowed, func(e error) bool { return errors.Is(err, e) }) {
		w.violate("%s: %v", call, err)
	}
}

func (w *world) newClient(random *rand.Rand) *holdfast.Client {
	fault := networkFault(rand.New(rand.NewPCG(random.Uint64(), 1)))
	if w.calm {
		fault = nil
	}
	config := &holdfast.Config{RequestTimeout: time.Second, MaxOutage: 5 * time.Second, LocalTurn: time.Duration(random.IntN(4)) * 100 * ms}
	if quorum, ok := w.store.(*quorumView); ok {
		store := quorum.connect(fault)
		w.mu.Lock()
		w.opened = append(w.opened, store)
		w.mu.Unlock()
		return holdfast.New(store, config)
	}
	net := faultstore.Wrap(observed{w.store.(driver.Notifier), w})
	for _, op := range append(requests, faultstore.Notice) {
		net.Set(op, fault)
	}
	return holdfast.New(net, config)
}

// watch looks whether a name is free though somebody waits, until ended is closed or the world must
// be over.
func (w *world) watch(ended <-chan struct{}, last time.Time) {
	type free struct {
		since    time.Time
		returned int
	}
	names := map[string]free{}
	for time.Now().Before(last) {
		select {
		case <-ended:
			return
		case <-time.After(500 * ms):
		}
		for name, n := range w.names {
			records, err := w.store.Lookup(context.Background(), name)
			if w.store.Guarantees().Queue { // A quorum may be divided for a moment.
				w.check("Lookup", err)
			}
			w.mu.Lock()
			if f := names[name]; f.since.IsZero() || len(records) > 0 || err != nil || n.waiting == 0 || f.returned != n.returned {
				names[name] = free{time.Now(), n.returned}
			} else if time.Since(f.since) > worldStuck {
				w.violateLocked("%d wait for %q, which is free since %v", n.waiting, name, f.since)
				names[name] = free{last, n.returned}
			}
			w.mu.Unlock()
		}
	}
	text := make([]byte, 1<<20)
	w.violate("some call does not return:\n%s", text[:runtime.Stack(text, true)])
}

// believes reports whether somebody relies on a hold that was not broken.
func (n *worldName) believes(h *worldHold) bool {
	if _, broken := n.brokenAt(h.token); broken {
		return false
	}
	return time.Now().Before(h.kept) || h.handle != nil && h.handle.Err() == nil
}

func (n *worldName) brokenAt(token int64) (time.Time, bool) {
	for _, b := range n.broken {
		if b.first <= token && token <= b.last {
			return b.at, true
		}
	}
	return time.Time{}, false
}

// begin records a hold or a keep, and looks whether it is one too many.
func (w *world) begin(name string, h *worldHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[name]
	if !n.believes(h) {
		return
	}
	if !n.seen[h.token] {
		n.seen[h.token] = true
		if h.token <= n.exclusive || h.limit <= 1 && h.token <= n.greatest {
			w.violateLocked("%q: token %d (limit %d) after %d and, of an exclusive hold, %d", name, h.token, h.limit, n.greatest, n.exclusive)
		}
		n.greatest = max(n.greatest, h.token)
		if h.limit <= 1 {
			n.exclusive = max(n.exclusive, h.token)
		}
	}
	n.holds = append(slices.DeleteFunc(n.holds, func(h *worldHold) bool { return !n.believes(h) }), h)
	limit, tokens := h.limit, map[int64]int{}
	for _, other := range n.holds {
		limit, tokens[other.token] = min(limit, other.limit), other.limit
	}
	if len(tokens) > max(limit, 1) {
		w.violateLocked("%q is held too often, limits by token: %v", name, tokens)
	}
}

// end checks a hold that was relied on.
func (w *world) end(name string, h *worldHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, broken := w.names[name].brokenAt(h.token)
	if late := h.handle.Deadline().Sub(at); broken && late > worldTTL {
		w.violateLocked("%q: token %d was broken, and renewed until %v later", name, h.token, late)
	}
	if lost := (*holdfast.LostError)(nil); w.calm && !broken && errors.As(h.handle.Err(), &lost) && lost.Token == h.token && lost.Reason == holdfast.ErrTaken {
		w.violateLocked("%v, though nothing has failed", lost)
	}
}

// An observed store notes the tokens of each entry, and what is broken.
type observed struct {
	driver.Notifier
	w *world
}

func (s observed) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	res, err := s.Notifier.Acquire(ctx, req)
	s.w.names[req.Name].blocks[res.Token] = req.Tokens
	return res, err
}

func (s observed) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	records, err := s.Notifier.Break(ctx, name, token)
	n := s.w.names[name]
	for _, rec := range records {
		n.broken = append(n.broken, worldBreak{rec.Token, rec.Token + int64(max(n.blocks[rec.Token], 1)) - 1, time.Now()})
	}
	return records, err
}

// networkFault has requests get lost, be refused, come late, come twice, or lose their reply, and
// notices alike.
func networkFault(random *rand.Rand) faultstore.Fault {
	var mu sync.Mutex
	return func(ctx context.Context, op faultstore.Op, apply func()) error {
		mu.Lock()
		fate, delay := random.IntN(50), time.Duration(random.Int64N(int64(worldDelay)))
		mu.Unlock()
		if op == faultstore.Notice {
			if fate < 20 {
				time.AfterFunc(delay, apply)
			}
			if fate >= 10 && fate < 45 {
				apply()
			}
			return nil
		}
		switch {
		case fate == 0:
			return faultstore.Refuse(ctx, op, apply)
		case fate == 1:
			return faultstore.Hang(ctx, op, apply)
		case fate == 2:
			return faultstore.LoseReply(ctx, op, apply)
		case fate < 6: // The request is late, or its reply.
			done := make(chan struct{})
			go func() {
				defer close(done)
				if fate == 3 {
					apply()
				}
				time.Sleep(delay)
				if fate != 3 {
					apply()
				}
			}()
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		case fate == 6 && (op == faultstore.Renew || op == faultstore.Release):
			time.AfterFunc(delay, apply)
		}
		apply()
		return nil
	}
}

// A player is a goroutine of a world.
type player struct {
	*world
	*rand.Rand
	ctx    context.Context
	client *atomic.Pointer[holdfast.Client]
}

// one is true once in n times.
func (p *player) one(n int) bool { return p.IntN(n) == 0 }

// sleep sleeps up to d, and less if a lock ends.
func (p *player) sleep(d time.Duration, lock context.Context) {
	select {
	case <-time.After(time.Duration(p.Int64N(int64(d)))):
	case <-lock.Done():
	}
}

func (p *player) options() *holdfast.Options {
	o := &holdfast.Options{TTL: worldTTL / time.Duration(1+p.IntN(8)), NoRenew: p.one(6), Detached: p.one(4)}
	limits := p.store.Guarantees().Limits
	switch p.IntN(10) {
	case 0, 1:
		o.Shared = limits
	case 2, 3:
		if limits {
			o.Limit = 2 + p.IntN(2)
		}
	case 4:
		o.Reentrant = true
	case 5:
		o.MaxHold = time.Duration(1+p.IntN(20)) * 100 * ms
	case 6, 7:
		o = &holdfast.Options{TTL: worldTTL} // It can be passed on.
	}
	switch p.IntN(4) {
	case 0:
		o.Wait = time.Duration(1 + p.Int64N(int64(10*time.Second)))
	case 1:
		o.MaxAttempts = 1 + p.IntN(4)
	}
	return o
}

func limitOf(o *holdfast.Options) int {
	if o.Shared {
		return driver.Shared
	}
	return max(o.Limit, 1)
}

var (
	acquireErrs = []error{holdfast.ErrHeld, holdfast.ErrUnavailable, holdfast.ErrClosed, context.DeadlineExceeded, context.Canceled}
	holdErrs    = []error{holdfast.ErrLost, holdfast.ErrReleased, holdfast.ErrUnavailable, holdfast.ErrClosed, context.DeadlineExceeded}
	askErrs     = []error{holdfast.ErrNotHeld, holdfast.ErrUnavailable, holdfast.ErrClosed, context.DeadlineExceeded}
)

// play does one thing.
func (p *player) play() {
	c, o := p.client.Load(), p.options()
	ctx, cancel := context.WithTimeout(p.ctx, time.Duration(1+p.Int64N(int64(20*time.Second))))
	defer cancel()
	if p.one(2) {
		ctx = p.ctx
	}
	name := string(rune('a' + p.IntN(len(p.names))))
	switch verb := p.IntN(64); {
	case verb == 0:
		c = p.client.Swap(p.newClient(p.Rand)) // Another player may have done so, too.
		p.check("Close", c.Close(), holdfast.ErrUnavailable, holdfast.ErrLost)
	case verb == 1:
		p.check("ReleaseAll", c.ReleaseAll(), holdfast.ErrUnavailable, holdfast.ErrLost)
	case verb < 6:
		records, err := c.Lookup(ctx, name)
		p.check("Lookup", err, askErrs...)
		if len(records) > 0 && p.one(2) && p.store.Guarantees().Queue { // A break by a quorum takes a moment.
			_, err := c.Break(ctx, name, records[0].Token*int64(p.IntN(2)))
			p.check("Break", err, askErrs...)
		}
	case verb < 14:
		o.NoRenew = false
		set, err := c.AcquireAll(ctx, []string{"c", "a", "b"}[p.IntN(3):], o)
		if p.check("AcquireAll", err, acquireErrs...); err == nil {
			for name, token := range set.Tokens() {
				p.begin(name, &worldHold{handle: set, token: token, limit: limitOf(o)})
			}
			p.sleep(2*time.Second, set.Context())
			p.check("Release of a set", set.Release(), holdErrs...)
		}
	case verb < 22:
		err := c.Do(ctx, name, o, func(ctx context.Context) error {
			lock := holdfast.FromContext(ctx)
			h := &worldHold{handle: lock, token: lock.Token(), limit: limitOf(o)}
			p.begin(name, h)
			p.sleep(2*time.Second, ctx)
			p.end(name, h)
			return nil
		})
		p.check("Do", err, slices.Concat(acquireErrs, holdErrs)...)
	case verb < 32:
		o.Wait = 2 * time.Second // two requests
		p.hold(name, o, func() (*holdfast.Lock, error) { return c.TryAcquire(ctx, name, o) })
	default:
		p.hold(name, o, func() (*holdfast.Lock, error) { return c.Acquire(ctx, name, o) })
	}
	p.sleep(2*time.Second, p.ctx)
}

// hold acquires a lock, holds it for a while, and gives it up in one of the ways there are.
func (p *player) hold(name string, o *holdfast.Options, acquire func() (*holdfast.Lock, error)) {
	n, began := p.names[name], time.Now()
	p.count(&n.waiting, 1)
	lock, err := acquire()
	p.count(&n.waiting, -1)
	p.count(&n.returned, 1)
	p.check("Acquire", err, acquireErrs...)
	if took := time.Since(began); o.Wait > 0 && took > o.Wait+time.Second {
		p.violate("a Wait of %v took %v", o.Wait, took)
	}
	if err != nil {
		return
	}
	h := &worldHold{handle: lock, token: lock.Token(), limit: limitOf(o)}
	p.begin(name, h)
	p.sleep(3*time.Second, lock.Context())
	if p.one(3) {
		p.check("Extend", lock.Extend(p.ctx, time.Duration(1+p.IntN(int(worldTTL/ms)/10))*10*ms), holdErrs...)
		p.sleep(3*time.Second, lock.Context())
	}
	defer p.end(name, h)
	switch way := p.IntN(10); {
	case way == 0 && o.NoRenew && !o.Reentrant: // It expires.
	case way < 3:
		keep := &worldHold{token: h.token, limit: h.limit, kept: time.Now().Add(time.Duration(p.Int64N(int64(worldTTL))))}
		err := lock.ReleaseKeep(max(time.Until(keep.kept), driver.MinTTL))
		if p.check("ReleaseKeep", err, append(holdErrs, holdfast.ErrInvalid)...); err == nil {
			p.begin(name, keep)
		}
		_ = lock.Release()
	case way < 6 && o.Detached:
		ticket, err := lock.HandOver()
		if p.check("HandOver", err, append(holdErrs, holdfast.ErrInvalid)...); err != nil {
			_ = lock.Release()
			return
		}
		p.sleep(time.Second, p.ctx)
		lock, err = p.clients[p.IntN(len(p.clients))].Load().Adopt(p.ctx, ticket, nil)
		if p.check("Adopt", err, askErrs...); err == nil {
			p.begin(name, &worldHold{handle: lock, token: lock.Token(), limit: h.limit})
			p.sleep(2*time.Second, lock.Context())
			p.check("Release after Adopt", lock.Release(), holdErrs...)
		}
	default:
		p.check("Release", lock.Release(), holdErrs...)
	}
}

func (w *world) count(n *int, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n += by
}
