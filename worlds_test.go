package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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
	worldLook  = 500 * ms         // between two looks whether a name is free
	worldStuck = 60               // in how many of them somebody may wait for a free name
)

// Goroutines of several Clients do everything that a Client can do, at random moments, over a
// network that loses, delays and doubles. TEST_SEED runs one world again, TEST_WHOLE a thousand of
// them. The order of what happens in one moment is not part of the seed.
func TestWorlds(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		testWorlds(t, 100, func(w *world) { w.useStore(memstore.New()) })
	})
	t.Run("quorum", func(t *testing.T) {
		testWorlds(t, 20, (*world).useQuorum) // Each has thousands of requests to nodes.
	})
}

func testWorlds(t *testing.T, worlds uint64, prepare func(*world)) {
	seed := rand.Uint64() >> 1
	if os.Getenv("TEST_WHOLE") != "" {
		worlds = 1000
	}
	if text := os.Getenv("TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		noErr(t, err)
		worlds = 1
	}
	for i := range worlds {
		if found := runWorld(t, prepare, seed+i); len(found) > 0 {
			t.Fatalf("TEST_SEED=%d: %s", seed+i, strings.Join(found[:min(len(found), 5)], "\n"))
		}
	}
}

// A world is the Clients and goroutines of one store.
type world struct {
	store   driver.Store // without faults
	t       *testing.T
	connect func(faultstore.Fault) driver.Store // what a Client sees of it over a network
	calm    bool                                // no request and no notice is lost or late
	clients [4]atomic.Pointer[holdfast.Client]

	mu    sync.Mutex // guards the fields of names
	names map[string]*worldName

	violating  sync.Mutex
	violations []string
}

// A worldName is what the world knows of one name.
type worldName struct {
	holds               []worldHold
	blocks              map[int64]int64     // how many tokens each entry has, by the first
	broken              map[int64]time.Time // the same entries, if they were broken
	exclusive, greatest int64               // the greatest token of an exclusive hold, and of any
	waiting             atomic.Int64        // calls of Acquire that are under way
	idle                atomic.Int64        // looks in a row at the free name without a return
}

// A worldHold is what somebody relies on: a Lock, a lock of a LockSet, or a keep.
type worldHold struct {
	token  int64
	limit  int
	exists func() bool
}

// useStore makes the world one of a single store.
func (w *world) useStore(store driver.Notifier) {
	w.store = store
	w.connect = func(fault faultstore.Fault) driver.Store { return behind(observed{store, w}, fault) }
}

// useQuorum makes the world one of three memory stores, which are the same for each Client.
func (w *world) useQuorum() {
	nodes := []driver.Store{memstore.New(), memstore.New(), memstore.New()}
	w.store = quorumstore.New(nodes, nil)
	w.connect = func(fault faultstore.Fault) driver.Store {
		var far []driver.Store
		for _, node := range nodes {
			far = append(far, behind(node, fault))
		}
		return quorumstore.New(far, &quorumstore.Options{Timeout: 300 * ms})
	}
}

func behind(store driver.Store, fault faultstore.Fault) driver.Store {
	net := faultstore.Wrap(store)
	setAll(net, fault)
	net.Set(faultstore.Lookup, fault)
	net.Set(faultstore.Break, fault)
	net.Set(faultstore.Notice, fault)
	return net
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

// runWorld returns what has gone wrong in a world.
func runWorld(t *testing.T, prepare func(*world), seed uint64) []string {
	w := &world{calm: seed%8 == 0, names: map[string]*worldName{}}
	for _, name := range []string{"a", "b", "c"} {
		w.names[name] = &worldName{blocks: map[int64]int64{}, broken: map[int64]time.Time{}}
	}
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		prepare(w)
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range w.clients {
			w.clients[i].Store(w.newClient(random))
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := time.Now().Add(worldSpan)
		var group sync.WaitGroup
		for i := range 5 * len(w.clients) {
			random := rand.New(rand.NewPCG(seed, uint64(i+1)))
			p := &player{w, random, ctx, &w.clients[i%len(w.clients)]}
			group.Go(func() {
				for time.Now().Before(over) {
					p.play()
				}
			})
		}
		go w.watch(ctx)
		endless := time.AfterFunc(worldSpan+2*time.Minute, func() {
			w.violate("some call does not return")
			cancel()
		})
		group.Wait()
		endless.Stop()
		cancel()
		for i := range w.clients {
			w.check("Close", w.clients[i].Load().Close(), closeErrs...)
		}
		time.Sleep(worldTTL + 3*worldDelay)
		for rec, err := range w.store.List(context.Background(), "") {
			w.violate("%v is left behind, %v", rec, err)
		}
		w.check("Close of the store", w.store.Close())
	})
	return w.violations
}

func (w *world) newClient(random *rand.Rand) *holdfast.Client {
	fault := networkFault(rand.New(rand.NewPCG(random.Uint64(), 1)))
	if w.calm {
		fault = nil
	}
	store := w.connect(fault)
	w.t.Cleanup(func() { w.check("Close of a store", store.Close()) })
	turn := time.Duration(random.IntN(4)) * 100 * ms
	config := holdfast.Config{RequestTimeout: time.Second, MaxOutage: 5 * time.Second, LocalTurn: turn}
	return holdfast.New(store, &config)
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
			if fate < 10 || fate >= 45 {
				return nil
			}
		case fate == 0:
			return faultstore.Refuse(ctx, op, apply)
		case fate == 1:
			return faultstore.Hang(ctx, op, apply)
		case fate == 2:
			return faultstore.LoseReply(ctx, op, apply)
		case fate == 3: // The reply is late.
			apply()
			return answersIn(delay)(ctx, op, func() {})
		case fate < 6: // The request is late, and is carried out though nobody waits for it.
			time.AfterFunc(delay, apply)
			return answersIn(delay+1)(ctx, op, func() {})
		case fate == 6 && (op == faultstore.Renew || op == faultstore.Release): // It comes twice.
			time.AfterFunc(delay, apply)
		}
		apply()
		return nil
	}
}

func (w *world) violate(format string, args ...any) {
	w.violating.Lock()
	defer w.violating.Unlock()
	moment := time.Now().Format("04:05.000000 ")
	w.violations = append(w.violations, moment+fmt.Sprintf(format, args...))
}

// check finds errors that a call may not return.
func (w *world) check(call string, err error, allowed ...error) {
	if err != nil && !slices.ContainsFunc(allowed, func(e error) bool { return errors.Is(err, e) }) {
		w.violate("%s: %v", call, err)
	}
}

// watch looks whether a name is free though somebody waits and nobody is served, or is held longer
// than anybody has asked for.
func (w *world) watch(ctx context.Context) {
	for ctx.Err() == nil {
		for name, n := range w.names {
			records, err := w.store.Lookup(context.Background(), name)
			if len(records) > 0 || err != nil || n.waiting.Load() == 0 {
				n.idle.Store(0)
			}
			if n.idle.Add(1) == worldStuck {
				w.violate("%d wait for %q, which is free", n.waiting.Load(), name)
			}
			for _, rec := range records {
				if rec.Remaining > worldTTL {
					w.violate("%v, which is longer than asked for", rec)
				}
			}
		}
		time.Sleep(worldLook)
	}
}

// brokenAt returns when the entry that has the token was broken.
func (n *worldName) brokenAt(token int64) (at time.Time, broken bool) {
	for first, at := range n.broken {
		if first <= token && token < first+n.blocks[first] {
			return at, true
		}
	}
	return time.Time{}, false
}

// begin records a hold or a keep, and looks whether it is one too many.
func (w *world) begin(name string, h worldHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[name]
	n.holds = slices.DeleteFunc(append(n.holds, h), func(h worldHold) bool {
		_, broken := n.brokenAt(h.token)
		return broken || !h.exists()
	})
	if len(n.holds) == 0 || n.holds[len(n.holds)-1].token != h.token {
		return // It has ended already.
	}
	if h.token < n.exclusive || h.limit == 1 && h.token < n.greatest {
		w.violate("%q: token %d (limit %d) after %d and, of an exclusive hold, %d",
			name, h.token, h.limit, n.greatest, n.exclusive)
	}
	n.greatest = max(n.greatest, h.token)
	if h.limit == 1 {
		n.exclusive = max(n.exclusive, h.token)
	}
	least, limits := h.limit, map[int64]int{} // by token
	for _, other := range n.holds {
		least, limits[other.token] = min(least, other.limit), other.limit
	}
	if len(limits) > least {
		w.violate("%q is held too often, limits by token: %v", name, limits)
	}
}

// end checks a hold that was relied on.
func (w *world) end(lock *holdfast.Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, broken := w.names[lock.Name()].brokenAt(lock.Token())
	if late := lock.Deadline().Sub(at); broken && late > worldTTL {
		w.violate("token %d was broken, and renewed until %v later", lock.Token(), late)
	}
	if w.calm && !broken && errors.Is(lock.Err(), holdfast.ErrTaken) {
		w.violate("%v, though nothing has failed", lock.Err())
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

// upTo returns a random duration from 1 ns to d.
func (p *player) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + p.Int64N(int64(d)))
}

// sleep sleeps up to d, and less if a lock ends.
func (p *player) sleep(d time.Duration, lock context.Context) {
	select {
	case <-time.After(p.upTo(d)):
	case <-lock.Done():
	}
}

// options returns random options, and how many holds they tolerate.
func (p *player) options() (o *holdfast.Options, limit int) {
	o, limit = &holdfast.Options{NoRenew: p.one(6), Detached: p.one(4)}, 1
	o.TTL = worldTTL / time.Duration(1+p.IntN(8))
	limits := p.store.Guarantees().Limits
	switch kind := p.IntN(10); {
	case kind < 2 && limits:
		o.Shared, limit = true, driver.Shared
	case kind < 4 && limits:
		limit = 2 + p.IntN(2)
		o.Limit = limit
	case kind == 4:
		o.Reentrant = true
	case kind == 5:
		o.MaxHold = p.upTo(20) * 100 * ms
	case kind < 8:
		o = &holdfast.Options{TTL: worldTTL} // It can be passed on.
	}
	switch p.IntN(4) {
	case 0:
		o.Wait = p.upTo(10 * time.Second)
	case 1:
		o.MaxAttempts = 1 + p.IntN(4)
	}
	return o, limit
}

// The errors that calls may return.
var (
	storeErrs   = []error{holdfast.ErrUnavailable, holdfast.ErrClosed, context.DeadlineExceeded}
	closeErrs   = []error{holdfast.ErrUnavailable, holdfast.ErrLost}
	askErrs     = append([]error{holdfast.ErrNotHeld}, storeErrs...)
	holdErrs    = append([]error{holdfast.ErrLost, holdfast.ErrReleased}, storeErrs...)
	passErrs    = append([]error{holdfast.ErrInvalid}, holdErrs...) // of a lock with other handles
	acquireErrs = append([]error{holdfast.ErrHeld, context.Canceled}, storeErrs...)
)

// play does one thing.
func (p *player) play() {
	c, ctx := p.client.Load(), p.ctx
	o, limit := p.options()
	if p.one(2) {
		timed, cancel := context.WithTimeout(ctx, p.upTo(20*time.Second))
		defer cancel()
		ctx = timed
	}
	name := string(rune('a' + p.IntN(len(p.names))))
	switch verb := p.IntN(64); {
	case verb == 0:
		c = p.client.Swap(p.newClient(p.Rand)) // Another player may have done so, too.
		p.check("Close", c.Close(), closeErrs...)
	case verb == 1:
		p.check("ReleaseAll", c.ReleaseAll(), closeErrs...)
	case verb < 6:
		records, err := c.Lookup(ctx, name)
		p.check("Lookup", err, askErrs...)
		// A break by a quorum takes a moment, which no hold can be compared with.
		if len(records) > 0 && p.one(2) && p.store.Guarantees().Queue {
			_, err := c.Break(ctx, name, records[0].Token*int64(p.IntN(2)))
			p.check("Break", err, askErrs...)
		}
	case verb < 14:
		o.NoRenew = false
		set, err := c.AcquireAll(ctx, []string{"c", "a", "b"}[p.IntN(3):], o)
		p.check("AcquireAll", err, acquireErrs...)
		if err != nil {
			break
		}
		for name, token := range set.Tokens() {
			p.begin(name, worldHold{token, limit, func() bool { return set.Err() == nil }})
		}
		p.sleep(2*time.Second, set.Context())
		p.check("Release of a set", set.Release(), holdErrs...)
	case verb < 22:
		err := c.Do(ctx, name, o, func(ctx context.Context) error {
			lock := holdfast.FromContext(ctx)
			p.use(lock, limit)
			p.end(lock)
			return nil
		})
		p.check("Do", err, slices.Concat(acquireErrs, holdErrs)...)
	case verb < 32:
		o.Wait = 2 * time.Second // two requests
		p.hold(ctx, name, o, limit, c.TryAcquire)
	default:
		p.hold(ctx, name, o, limit, c.Acquire)
	}
	p.sleep(2*time.Second, p.ctx)
}

// hold acquires a lock, holds it for a while, and gives it up in one of the ways there are.
func (p *player) hold(
	ctx context.Context, name string, o *holdfast.Options, limit int,
	acquire func(context.Context, string, *holdfast.Options) (*holdfast.Lock, error),
) {
	n, began := p.names[name], time.Now()
	n.waiting.Add(1)
	lock, err := acquire(ctx, name, o)
	n.waiting.Add(-1)
	n.idle.Store(0)
	p.check("Acquire", err, acquireErrs...)
	if took := time.Since(began); o.Wait > 0 && took > o.Wait+time.Second {
		p.violate("a Wait of %v took %v", o.Wait, took)
	}
	if err != nil {
		return
	}
	p.use(lock, limit)
	defer p.end(lock)
	switch way := p.IntN(10); {
	case way == 0 && o.NoRenew && !o.Reentrant: // It expires.
		return
	case way < 3:
		d := max(p.upTo(worldTTL), driver.MinTTL)
		end := time.Now().Add(d)
		err := lock.ReleaseKeep(d)
		if p.check("ReleaseKeep", err, passErrs...); err == nil {
			isKept := func() bool { return time.Now().Before(end) }
			p.begin(name, worldHold{lock.Token(), limit, isKept})
		}
	case way < 6 && o.Detached:
		ticket, err := lock.HandOver()
		if p.check("HandOver", err, passErrs...); err != nil {
			break
		}
		p.sleep(time.Second, p.ctx)
		c := p.clients[p.IntN(len(p.clients))].Load()
		adopted, err := c.Adopt(p.ctx, ticket, nil)
		if p.check("Adopt", err, askErrs...); err == nil {
			p.use(adopted, limit)
			p.check("Release after Adopt", adopted.Release(), holdErrs...)
		}
		return
	}
	p.check("Release", lock.Release(), holdErrs...)
}

// use relies on a lock for a while, and may extend it.
func (p *player) use(lock *holdfast.Lock, limit int) {
	p.begin(lock.Name(), worldHold{lock.Token(), limit, func() bool { return lock.Err() == nil }})
	p.sleep(3*time.Second, lock.Context())
	if p.one(3) {
		p.check("Extend", lock.Extend(p.ctx, p.upTo(worldTTL/10/ms)*10*ms), holdErrs...)
		p.sleep(3*time.Second, lock.Context())
	}
}
