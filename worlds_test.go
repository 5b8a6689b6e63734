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
	worldStuck = 30 * time.Second // for which somebody may wait for a free name
)

// Goroutines of several Clients do everything that a Client can do, at random moments, over a
// network that loses, delays and doubles. TEST_SEED runs one world again, TEST_WHOLE a thousand of
// them. The order of what happens in one moment is not part of the seed.
func TestWorlds(t *testing.T) {
	for kind, nodes := range map[string]int{"memory": 1, "quorum": 3} {
		t.Run(kind, func(t *testing.T) {
			seed, err := strconv.ParseUint(os.Getenv("TEST_SEED"), 10, 64)
			worlds := uint64(60 / (nodes * nodes)) // of which one of a quorum has more requests
			if err == nil {
				worlds = 1
			} else if seed = rand.Uint64() >> 1; os.Getenv("TEST_WHOLE") != "" {
				worlds = 1000
			}
			for i := range worlds {
				if found := runWorld(t, make([]bentStore, nodes), seed+i); len(found) > 0 {
					t.Fatalf("TEST_SEED=%d: %s", seed+i, strings.Join(found[:min(len(found), 5)], "\n"))
				}
			}
		})
	}
}

// A world is what Clients and goroutines do with three names of one store.
type world struct {
	nodes   []driver.Notifier // the parts of the store, without faults
	store   driver.Store      // the same, whole
	ctx     context.Context
	clients [4]atomic.Pointer[holdfast.Client]

	mu         sync.Mutex // guards what follows
	names      map[string]*worldName
	violations []string
}

// A worldName is what the world knows of one name.
type worldName struct {
	holds               []worldHold
	broken              map[int64]time.Time // entries, by their first token
	exclusive, greatest int64               // the greatest token of an exclusive hold, and of any
	waiting             int                 // calls of Acquire that are under way
	busy                time.Time           // when it was held last, or nobody waited, or a call returned
}

// A worldHold is what somebody relies on: a Lock, a lock of a LockSet, or a keep.
type worldHold struct {
	token  int64
	limit  int
	exists func() bool
}

// runWorld returns what has gone wrong in a world on memory stores that may be bent. Several are a
// quorum.
func runWorld(t *testing.T, bent []bentStore, seed uint64) []string {
	w := &world{names: map[string]*worldName{}}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w.ctx = ctx
		for _, name := range []string{"a", "b", "c"} {
			w.names[name] = &worldName{broken: map[int64]time.Time{}, busy: time.Now()}
		}
		for _, b := range bent {
			b.Notifier = memstore.New()
			w.nodes = append(w.nodes, b)
		}
		w.store = w.connect(nil)
		for i := range w.clients {
			w.clients[i].Store(w.newClient(t, rand.New(rand.NewPCG(seed, uint64(100+i)))))
		}
		over := time.Now().Add(worldSpan)
		var group sync.WaitGroup
		for i := range 5 * len(w.clients) {
			p := &player{w, rand.New(rand.NewPCG(seed, uint64(i))), &w.clients[i%len(w.clients)]}
			group.Go(func() {
				for time.Now().Before(over) {
					p.play(t)
					p.sleep(2*time.Second, ctx)
				}
			})
		}
		go w.watch()
		endless := time.AfterFunc(worldSpan+2*time.Minute, func() {
			w.violate("some call does not return")
			cancel()
		})
		group.Wait()
		endless.Stop()
		cancel()
		for i := range w.clients {
			w.check("Close", w.clients[i].Load().Close())
		}
		time.Sleep(worldTTL + 3*worldDelay)
		for rec, err := range w.store.List(context.Background(), "") {
			w.violate("%v is left behind, %v", rec, err)
		}
		w.check("Close of the store", w.store.Close())
	})
	return w.violations
}

// connect returns the store as one sees it over a network.
func (w *world) connect(fault faultstore.Fault) driver.Store {
	var far []driver.Store
	for _, node := range w.nodes {
		net := faultstore.Wrap(node)
		setAll(net, fault)
		net.Set(faultstore.Notice, fault)
		far = append(far, net)
	}
	if len(far) == 1 {
		return far[0]
	}
	return quorumstore.New(far, &quorumstore.Options{Timeout: 300 * ms})
}

func (w *world) newClient(t *testing.T, random *rand.Rand) *holdfast.Client {
	turn := time.Duration(random.IntN(4)) * 100 * ms
	store := w.connect(networkFault(random.Uint64()))
	t.Cleanup(func() { w.check("Close of a store", store.Close()) })
	return holdfast.New(store, &holdfast.Config{RequestTimeout: time.Second, MaxOutage: 5 * time.Second, LocalTurn: turn})
}

// networkFault has requests get lost, be refused, come late, come twice, or lose their reply, and
// notices alike.
func networkFault(seed uint64) faultstore.Fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(ctx context.Context, op faultstore.Op, apply func()) error {
		mu.Lock()
		fate, delay := random.IntN(50), time.Duration(random.Int64N(int64(worldDelay)))
		mu.Unlock()
		isLate := fate == 4 || fate == 5 || fate == 6 && op != faultstore.Acquire
		if op == faultstore.Notice {
			isLate = fate < 20
		}
		if isLate {
			time.AfterFunc(delay, apply)
		}
		switch {
		case op == faultstore.Notice && (fate < 10 || fate >= 45): // It is late or lost.
			return nil
		case op == faultstore.Notice:
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
			return answersIn(delay+1)(ctx, op, func() {})
		}
		apply() // also one that comes twice
		return nil
	}
}

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, time.Now().Format("04:05.000000 ")+fmt.Sprintf(format, args...))
}

// worldErrors are what a call may return: it may come too late, or be cut short. ErrInvalid is that
// of a handle on what others have.
var worldErrors = []error{
	holdfast.ErrHeld, holdfast.ErrLost, holdfast.ErrReleased, holdfast.ErrNotHeld, holdfast.ErrUnavailable,
	holdfast.ErrClosed, holdfast.ErrInvalid, context.Canceled, context.DeadlineExceeded,
}

// check reports whether a call has succeeded.
func (w *world) check(call string, err error) bool {
	if err != nil && !slices.ContainsFunc(worldErrors, func(target error) bool { return errors.Is(err, target) }) {
		w.violate("%s: %v", call, err)
	}
	return err == nil
}

// watch looks whether a name is free though somebody waits and nobody is served, or is held longer
// than anybody has asked for.
func (w *world) watch() {
	for ; w.ctx.Err() == nil; time.Sleep(500 * ms) {
		for name, n := range w.names {
			records, err := w.store.Lookup(context.Background(), name)
			if len(records) > 0 || err != nil {
				w.waits(name, 0)
			}
			w.mu.Lock()
			waiting, idle := n.waiting, time.Since(n.busy)
			w.mu.Unlock()
			if waiting > 0 && idle > worldStuck {
				w.violate("%d wait for %q, which is free", waiting, name)
			}
			for _, rec := range records {
				if rec.Remaining > worldTTL {
					w.violate("%v, which is longer than asked for", rec)
				}
			}
		}
	}
}

// waits notes that so many more wait for a name, and that it is in use at this moment.
func (w *world) waits(name string, more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[name]
	if n.waiting == 0 || more <= 0 {
		n.busy = time.Now()
	}
	n.waiting += more
}

// begin records a hold or a keep, and looks whether it is one too many.
func (w *world) begin(name string, h worldHold) {
	w.mu.Lock()
	n := w.names[name]
	n.holds = slices.DeleteFunc(append(n.holds, h), func(h worldHold) bool { return n.wasBroken(h.token) || !h.exists() })
	ended := len(n.holds) == 0 || n.holds[len(n.holds)-1].token != h.token
	least, limits := h.limit, map[int64]int{} // by token
	for _, other := range n.holds {
		least, limits[other.token] = min(least, other.limit), other.limit
	}
	exclusive, greatest := n.exclusive, n.greatest
	if n.greatest = max(greatest, h.token); h.limit == 1 {
		n.exclusive = max(exclusive, h.token)
	}
	w.mu.Unlock()
	if !ended && (h.token < exclusive || h.limit == 1 && h.token < greatest) {
		w.violate("%q: token %d (limit %d) after %d and, of an exclusive hold, %d", name, h.token, h.limit, greatest, exclusive)
	}
	if !ended && len(limits) > least {
		w.violate("%q is held too often, limits by token: %v", name, limits)
	}
}

// wasBroken reports whether the token may be one of an entry that was broken.
func (n *worldName) wasBroken(token int64) bool {
	for first := range n.broken {
		if first <= token && token < first+driver.MaxTokens {
			return true
		}
	}
	return false
}

// breakLock breaks at the store itself, in the step in which it is noted. A break by a quorum takes
// a moment, which no hold can be compared with.
func (w *world) breakLock(name string, all bool) {
	if len(w.nodes) > 1 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	held, _ := w.store.Lookup(w.ctx, name)
	if len(held) > 0 && !all {
		held, _ = w.store.Break(w.ctx, name, held[0].Token)
	} else if len(held) > 0 {
		held, _ = w.store.Break(w.ctx, name, 0)
	}
	for _, rec := range held {
		w.names[name].broken[rec.Token] = time.Now()
	}
}

// A player is a goroutine of a world.
type player struct {
	*world
	*rand.Rand
	client *atomic.Pointer[holdfast.Client]
}

// upTo returns a random duration from 1 ns to d.
func (p *player) upTo(d time.Duration) time.Duration { return time.Duration(1 + p.Int64N(int64(d))) }

// sleep sleeps up to d, and less if a lock ends.
func (p *player) sleep(d time.Duration, lock context.Context) {
	select {
	case <-time.After(p.upTo(d)):
	case <-lock.Done():
	}
}

// options returns random options, and how many holds they tolerate.
func (p *player) options() (o *holdfast.Options, limit int) {
	o, limit = &holdfast.Options{TTL: worldTTL}, 1 // of a lock that can be passed on
	kind := p.IntN(10)
	if kind < 6 || kind > 7 {
		o = &holdfast.Options{TTL: worldTTL / time.Duration(1+p.IntN(8)), NoRenew: p.IntN(6) == 0, Detached: p.IntN(4) == 0}
	}
	limits := p.store.Guarantees().Limits
	switch {
	case kind < 2 && limits:
		o.Shared, limit = true, driver.Shared
	case kind < 4 && limits:
		limit = 2 + p.IntN(2)
		o.Limit = limit
	case kind == 4:
		o.Reentrant = true
	case kind == 5:
		o.MaxHold = p.upTo(20) * 100 * ms
	}
	switch p.IntN(4) {
	case 0:
		o.Wait = p.upTo(10 * time.Second)
	case 1:
		o.MaxAttempts = 1 + p.IntN(4)
	}
	return o, limit
}

// play does one thing that a Client can do.
func (p *player) play(t *testing.T) {
	c, name := p.client.Load(), string(rune('a'+p.IntN(len(p.names))))
	o, limit := p.options()
	ctx, cancel := context.WithCancel(p.ctx)
	if p.IntN(2) == 0 {
		ctx, cancel = context.WithTimeout(p.ctx, p.upTo(40*time.Second))
	}
	defer cancel()
	switch chance := p.IntN(64); {
	case chance == 0:
		old := p.client.Swap(p.newClient(t, p.Rand)) // Another player may have done so, too.
		p.check("Close", old.Close())
	case chance == 1:
		p.check("ReleaseAll", c.ReleaseAll())
	case chance < 6:
		p.breakLock(name, p.IntN(2) == 0)
	case chance < 14:
		o.NoRenew = false
		var names []string
		for _, n := range p.Perm(len(p.names))[:1+p.IntN(len(p.names))] {
			names = append(names, string(rune('a'+n)))
		}
		set, err := c.AcquireAll(ctx, names, o)
		if !p.check("AcquireAll", err) {
			break
		}
		for name, token := range set.Tokens() {
			p.begin(name, worldHold{token, limit, func() bool { return set.Err() == nil }})
		}
		p.sleep(2*time.Second, set.Context())
		p.check("Release of a set", set.Release())
	case chance < 22:
		p.check("Do", c.Do(ctx, name, o, func(ctx context.Context) error {
			var over atomic.Bool // The lock lasts as long as the work, also after ReleaseAll.
			lock := holdfast.FromContext(ctx)
			p.begin(name, worldHold{lock.Token(), limit, func() bool {
				end := lock.Err()
				return end == nil || errors.Is(end, holdfast.ErrReleased) && !over.Load() && time.Now().Before(lock.Deadline())
			}})
			if p.use(lock, limit); errors.Is(lock.Err(), holdfast.ErrReleased) {
				p.check("Release in the work", lock.Release())
				p.check("a second Do", lock.Do(ctx, func(context.Context) error { return nil }))
				p.sleep(time.Second, p.ctx)
			}
			over.Store(true)
			return nil
		}))
	default:
		acquire, began := c.Acquire, time.Now()
		if chance < 32 {
			acquire, o.Wait = c.TryAcquire, 2*time.Second // two requests
		}
		p.waits(name, 1)
		lock, err := acquire(ctx, name, o)
		p.waits(name, -1)
		if took := time.Since(began); o.Wait > 0 && took > o.Wait+time.Second {
			p.violate("a Wait of %v took %v", o.Wait, took)
		}
		if p.check("Acquire", err) {
			p.use(lock, limit)
			p.giveUp(lock, o, limit)
		}
	}
}

// use relies on a lock for a while, and may extend it.
func (p *player) use(lock *holdfast.Lock, limit int) {
	p.begin(lock.Name(), worldHold{lock.Token(), limit, func() bool { return lock.Err() == nil }})
	p.sleep(3*time.Second, lock.Context())
	if p.IntN(3) == 0 {
		p.check("Extend", lock.Extend(p.ctx, p.upTo(worldTTL/10/ms)*10*ms))
		p.sleep(3*time.Second, lock.Context())
	}
	p.mu.Lock()
	at, broken := p.names[lock.Name()].broken[lock.Token()]
	p.mu.Unlock()
	if left := lock.Deadline().Sub(at); broken && left > worldTTL {
		p.violate("token %d was broken, and renewed until %v later", lock.Token(), left)
	}
}

// giveUp gives a lock up in one of the ways there are.
func (p *player) giveUp(lock *holdfast.Lock, o *holdfast.Options, limit int) {
	switch way := p.IntN(10); {
	case way == 0 && o.NoRenew && !o.Reentrant: // It expires.
		return
	case way < 3:
		d := max(p.upTo(worldTTL), driver.MinTTL)
		end := time.Now().Add(d)
		if p.check("ReleaseKeep", lock.ReleaseKeep(d)) {
			p.begin(lock.Name(), worldHold{lock.Token(), limit, func() bool { return time.Now().Before(end) }})
		}
	case way < 6 && o.Detached:
		if ticket, err := lock.HandOver(); p.check("HandOver", err) {
			p.sleep(time.Second, p.ctx)
			adopted, err := p.clients[p.IntN(len(p.clients))].Load().Adopt(p.ctx, ticket, nil)
			if p.check("Adopt", err) {
				p.use(adopted, limit)
				lock = adopted
			}
		}
	}
	p.check("Release", lock.Release())
}

// TestWorldsFindBrokenStores: each thing that a store may do wrong is found within a few worlds.
func TestWorldsFindBrokenStores(t *testing.T) {
	instead := func(of, other driver.State) func(*driver.Entry) {
		return func(e *driver.Entry) {
			if e.State == of {
				e.State = other
			}
		}
	}
	for name, bent := range map[string]bentStore{
		"half of the TTL":             {acquire: func(r *driver.Request) { r.TTL = max(r.TTL/2, driver.MinTTL) }},
		"a hold outlives its TTL":     {acquire: func(r *driver.Request) { r.TTL = driver.MaxTTL }},
		"a plain lock tolerates more": {acquire: func(r *driver.Request) { r.Limit, r.Tokens = max(r.Limit, 2), 0 }},
		"limits are ignored":          {acquire: func(r *driver.Request) { r.Limit = min(r.Limit/2, 1) * driver.Shared }},
		"tokens fall":                 {acquired: func(res *driver.Result) { res.Token = driver.MaxToken - res.Token }},
		"a wait is a grant":           {acquired: func(res *driver.Result) { res.Granted = res.Granted || res.Waiting }},
		"a lost hold is renewed":      {renewed: instead(driver.Lost, driver.Held)},
		"a place is a hold":           {renewed: instead(driver.Waiting, driver.Held)},
		"a place outlives its hold":   {renewed: instead(driver.Lost, driver.Waiting)},
		"a keep is ignored":           {release: func(r *driver.ReleaseRequest) error { r.Keep = 0; return nil }},
		"a release finds damage":      {release: func(*driver.ReleaseRequest) error { return driver.ErrCorrupt }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const worlds = 40
			seed := rand.Uint64() >> 1
			for i := range uint64(worlds) {
				if found := runWorld(t, []bentStore{bent}, seed+i); len(found) > 0 {
					t.Logf("found in world %d: %.150s", i+1, found[0])
					return
				}
			}
			t.Errorf("not found in %d worlds from seed %d", worlds, seed)
		})
	}
}

// A bentStore is a store that changes requests or results of one kind, unless it is only a store.
type bentStore struct {
	driver.Notifier
	acquire  func(*driver.Request)
	acquired func(*driver.Result)
	renewed  func(*driver.Entry)
	release  func(*driver.ReleaseRequest) error
}

func (s bentStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	if s.acquire != nil {
		s.acquire(&req)
	}
	res, err := s.Notifier.Acquire(ctx, req)
	if s.acquired != nil {
		s.acquired(&res)
	}
	return res, err
}

func (s bentStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries, err := s.Notifier.Renew(ctx, reqs)
	for i := range entries {
		if s.renewed != nil {
			s.renewed(&entries[i])
		}
	}
	return entries, err
}

func (s bentStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if s.release != nil {
		if err := s.release(&req); err != nil {
			return false, err
		}
	}
	return s.Notifier.Release(ctx, req)
}
