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
	}
	seed := rand.Uint64() >> 1
	if text := os.Getenv("TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		worlds = 1
	}
	for name, open := range map[string]func() worldStore{
		"memory": func() worldStore { return oneStore{memstore.New()} }, "quorum": newQuorum,
	} {
		t.Run(name, func(t *testing.T) {
			worlds := worlds
			if name == "quorum" && worlds == 100 {
				worlds = 20 // Each has thousands of requests to nodes.
			}
			for i := range uint64(worlds) {
				if violations := runWorld(t, open, seed+i); len(violations) > 0 {
					t.Fatalf("TEST_SEED=%d: %d violations:\n%s", seed+i, len(violations), strings.Join(violations[:min(len(violations), 5)], "\n"))
				}
			}
		})
	}
}

// A worldStore is a store without faults. connect returns what a Client of the world sees of it
// over a network.
type worldStore interface {
	driver.Store
	connect(w *world, fault faultstore.Fault) driver.Store
}

var requests = []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release, faultstore.Lookup, faultstore.Break}

func behind(store driver.Store, fault faultstore.Fault) driver.Store {
	net := faultstore.Wrap(store)
	for _, op := range append(requests, faultstore.Notice) {
		net.Set(op, fault)
	}
	return net
}

type oneStore struct{ driver.Notifier }

func (s oneStore) connect(w *world, fault faultstore.Fault) driver.Store {
	return behind(observed{s.Notifier, w}, fault)
}

// An observed store notes how many tokens each entry has, and what is broken, before anybody else
// can see it.
type observed struct {
	driver.Notifier
	w *world
}

func (s observed) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	res, err := s.Notifier.Acquire(ctx, req)
	s.w.names[req.Name].blocks[res.Token] = int64(max(req.Tokens, 1))
	return res, err
}

func (s observed) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	records, err := s.Notifier.Break(ctx, name, token)
	for _, rec := range records {
		s.w.names[name].broken[rec.Token] = time.Now()
	}
	return records, err
}

// A quorum of memory stores is the same nodes for each Client.
type quorum struct {
	driver.Store
	nodes []driver.Store
}

func newQuorum() worldStore {
	nodes := []driver.Store{memstore.New(), memstore.New(), memstore.New()}
	return quorum{quorumstore.New(nodes, nil), nodes}
}

func (q quorum) connect(_ *world, fault faultstore.Fault) driver.Store {
	var nodes []driver.Store
	for _, node := range q.nodes {
		nodes = append(nodes, behind(node, fault))
	}
	return quorumstore.New(nodes, &quorumstore.Options{Timeout: 300 * ms})
}

// A world is the Clients and goroutines of one store.
type world struct {
	store   worldStore
	calm    bool // no request and no notice is lost or late
	clients [4]atomic.Pointer[holdfast.Client]
	names   map[string]*worldName

	mu     sync.Mutex     // guards the fields of names, and
	stores []driver.Store // that Clients were opened on

	violating  sync.Mutex
	violations []string
}

// A worldName is what the world knows of one name.
type worldName struct {
	holds               []*worldHold
	blocks              map[int64]int64     // how many tokens each entry has, by the first
	broken              map[int64]time.Time // the same entries, if they were broken
	seen                map[int64]bool      // the tokens of holds
	exclusive, greatest int64               // the greatest token of an exclusive hold, and of any
	waiting, returned   atomic.Int64        // calls of Acquire that are under way, and that have returned
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

func runWorld(t *testing.T, open func() worldStore, seed uint64) (violations []string) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{store: open(), calm: seed%8 == 0, names: map[string]*worldName{}}
		for _, name := range []string{"a", "b", "c"} {
			w.names[name] = &worldName{blocks: map[int64]int64{}, broken: map[int64]time.Time{}, seen: map[int64]bool{}}
		}
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range w.clients {
			w.clients[i].Store(w.newClient(random))
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := time.Now().Add(worldSpan)
		var group sync.WaitGroup
		for i := range 5 * len(w.clients) {
			p := &player{w, rand.New(rand.NewPCG(seed, uint64(i+1))), ctx, &w.clients[i%len(w.clients)]}
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
		time.Sleep(worldTTL + 3*worldDelay)
		for rec, err := range w.store.List(context.Background(), "") {
			w.violate("%v is left behind, %v", rec, err)
		}
		for _, s := range append(w.stores, w.store) {
			w.check("Close of a store", s.Close())
		}
		violations = w.violations
	})
	return violations
}

func (w *world) newClient(random *rand.Rand) *holdfast.Client {
	fault := networkFault(rand.New(rand.NewPCG(random.Uint64(), 1)))
	if w.calm {
		fault = nil
	}
	store := w.store.connect(w, fault)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stores = append(w.stores, store)
	return holdfast.New(store, &holdfast.Config{
		RequestTimeout: time.Second, MaxOutage: 5 * time.Second, LocalTurn: time.Duration(random.IntN(4)) * 100 * ms,
	})
}

func (w *world) violate(format string, args ...any) {
	w.violating.Lock()
	defer w.violating.Unlock()
	w.violations = append(w.violations, time.Now().Format("04:05.000000 ")+fmt.Sprintf(format, args...))
}

// check finds errors that a call may not return.
func (w *world) check(call string, err error, allowed ...error) {
	if err != nil && !slices.ContainsFunc(allowed, func(e error) bool { return errors.Is(err, e) }) {
		w.violate("%s: %v", call, err)
	}
}

// watch looks whether a name is free though somebody waits and nobody is served, until ended is
// closed or the world must be over.
func (w *world) watch(ended <-chan struct{}, last time.Time) {
	const step = 500 * ms
	free, returned := map[string]time.Duration{}, map[string]int64{}
	for time.Now().Before(last) {
		select {
		case <-ended:
			return
		case <-time.After(step):
		}
		for name, n := range w.names {
			records, err := w.store.Lookup(context.Background(), name)
			waiting, before := n.waiting.Load(), returned[name]
			returned[name] = n.returned.Load()
			if free[name] += step; len(records) > 0 || err != nil || waiting == 0 || returned[name] != before {
				free[name] = 0
			}
			if free[name] == worldStuck {
				w.violate("%d wait for %q, which is free for %v", waiting, name, worldStuck)
			}
		}
	}
	text := make([]byte, 1<<20)
	w.violate("some call does not return:\n%s", text[:runtime.Stack(text, true)])
}

// brokenAt returns when the entry that has the token was broken.
func (n *worldName) brokenAt(token int64) (time.Time, bool) {
	for first, at := range n.broken {
		if first <= token && token < first+n.blocks[first] {
			return at, true
		}
	}
	return time.Time{}, false
}

// believes reports whether somebody relies on a hold that was not broken.
func (n *worldName) believes(h *worldHold) bool {
	_, broken := n.brokenAt(h.token)
	return !broken && (time.Now().Before(h.kept) || h.handle != nil && h.handle.Err() == nil)
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
			w.violate("%q: token %d (limit %d) after %d and, of an exclusive hold, %d", name, h.token, h.limit, n.greatest, n.exclusive)
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
		w.violate("%q is held too often, limits by token: %v", name, tokens)
	}
}

// end checks a hold that was relied on.
func (w *world) end(name string, h *worldHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, broken := w.names[name].brokenAt(h.token)
	if late := h.handle.Deadline().Sub(at); broken && late > worldTTL {
		w.violate("%q: token %d was broken, and renewed until %v later", name, h.token, late)
	}
	if lost := (*holdfast.LostError)(nil); w.calm && !broken && errors.As(h.handle.Err(), &lost) && lost.Token == h.token && lost.Reason == holdfast.ErrTaken {
		w.violate("%v, though nothing has failed", lost)
	}
}

// networkFault has requests get lost, be refused, come late, come twice, or lose their reply, and
// notices alike.
func networkFault(random *rand.Rand) faultstore.Fault {
	var mu sync.Mutex
	return func(ctx context.Context, op faultstore.Op, apply func()) error {
		mu.Lock()
		fate, delay := random.IntN(50), time.Duration(random.Int64N(int64(worldDelay)))
		mu.Unlock()
		switch {
		case op == faultstore.Notice:
			if fate < 20 {
				time.AfterFunc(delay, apply)
			}
			if fate >= 10 && fate < 45 {
				apply()
			}
			return nil
		case fate == 0:
			return faultstore.Refuse(ctx, op, apply)
		case fate == 1:
			return faultstore.Hang(ctx, op, apply)
		case fate == 2:
			return faultstore.LoseReply(ctx, op, apply)
		case fate == 3: // The reply is late.
			apply()
			return answersIn(delay)(ctx, op, func() {})
		case fate < 6: // The request is late.
			done := make(chan struct{})
			time.AfterFunc(delay, func() { apply(); close(done) })
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
			p.end(name, p.use(name, o, holdfast.FromContext(ctx)))
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
	n.waiting.Add(1)
	lock, err := acquire()
	n.waiting.Add(-1)
	n.returned.Add(1)
	p.check("Acquire", err, acquireErrs...)
	if took := time.Since(began); o.Wait > 0 && took > o.Wait+time.Second {
		p.violate("a Wait of %v took %v", o.Wait, took)
	}
	if err != nil {
		return
	}
	h := p.use(name, o, lock)
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
			p.use(name, o, lock)
			p.check("Release after Adopt", lock.Release(), holdErrs...)
		}
	default:
		p.check("Release", lock.Release(), holdErrs...)
	}
}

// use relies on a lock for a while, and may extend it.
func (p *player) use(name string, o *holdfast.Options, lock *holdfast.Lock) *worldHold {
	h := &worldHold{handle: lock, token: lock.Token(), limit: limitOf(o)}
	p.begin(name, h)
	p.sleep(3*time.Second, lock.Context())
	if p.one(3) {
		p.check("Extend", lock.Extend(p.ctx, time.Duration(1+p.IntN(int(worldTTL/ms)/10))*10*ms), holdErrs...)
		p.sleep(3*time.Second, lock.Context())
	}
	return h
}
