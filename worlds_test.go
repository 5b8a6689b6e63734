package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
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
)

// Goroutines of several Clients do everything that a Client can do, at random moments, over a
// network that loses, delays and doubles. TEST_WHOLE runs a thousand worlds.
func TestWorlds(t *testing.T) {
	for kind, nodes := range map[string]int{"memory": 1, "quorum": 3} {
		t.Run(kind, func(t *testing.T) {
			worlds := 60 / (nodes * nodes) // one of a quorum has more requests
			if os.Getenv("TEST_WHOLE") != "" {
				worlds = 1000
			}
			if found := runWorlds(t, worlds, nodes, func(any) {}); found != "" {
				t.Error(found)
			}
		})
	}
}

// TestWorldsFindBrokenStores: each thing that a store may do wrong is found within a few worlds.
func TestWorldsFindBrokenStores(t *testing.T) {
	for name, bug := range map[string]func(any){
		"half of the TTL":             faultstore.Bent(func(r *driver.Request) { r.TTL = max(r.TTL/2, driver.MinTTL) }),
		"a hold outlives its TTL":     faultstore.Bent(func(r *driver.Request) { r.TTL = driver.MaxTTL }),
		"a plain lock tolerates more": faultstore.Bent(func(r *driver.Request) { r.Limit, r.Tokens = max(r.Limit, 2), 0 }),
		"limits are ignored":          faultstore.Bent(func(r *driver.Request) { r.Limit = min(r.Limit/2, 1) * driver.Shared }),
		"tokens fall":                 faultstore.Bent(func(res *driver.Result) { res.Token = driver.MaxToken - res.Token }),
		"a wait is a grant":           faultstore.Bent(func(res *driver.Result) { res.Granted = res.Granted || res.Waiting }),
		"a lost hold is renewed":      instead(driver.Lost, driver.Held),
		"a place is a hold":           instead(driver.Waiting, driver.Held),
		"a place outlives its hold":   instead(driver.Lost, driver.Waiting),
		"a keep is ignored":           faultstore.Bent(func(r *driver.ReleaseRequest) { r.Keep = 0 }),
		"damage is found":             faultstore.Bent(func(err *error) { *err = driver.ErrCorrupt }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := runWorlds(t, 40, 1, bug)
			if t.Logf("%.200s", found); found == "" {
				t.Error("it is not found")
			}
		})
	}
}

// runWorlds runs worlds until one goes wrong, and returns how it does. TEST_SEED runs that one
// again; the order of what happens in one moment is not part of the seed.
func runWorlds(t *testing.T, worlds, nodes int, bug func(any)) string {
	seed, err := strconv.ParseUint(os.Getenv("TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64() >> 1
	} else {
		worlds = 1
	}
	for i := range uint64(worlds) {
		w := &world{seed: seed + i, nodes: nodes, bug: bug, names: map[string]*worldName{}}
		synctest.Test(t, w.run)
		if found := w.found.String(); found != "" {
			return fmt.Sprintf("TEST_SEED=%d: %.500s", seed+i, found)
		}
	}
	return ""
}

// A world is what Clients and goroutines do with three names of one store.
type world struct {
	seed    uint64
	nodes   int       // memory stores; several are a quorum
	bug     func(any) // what changes requests and results
	ctx     context.Context
	connect func(faultstore.Fault) driver.Store
	store   driver.Store // without a network
	clients [4]atomic.Pointer[holdfast.Client]
	names   map[string]*worldName
	mu      sync.Mutex // guards what the names contain
	found   logText    // what has gone wrong
}

type worldName struct {
	holds               []worldHold
	broken              map[int64]time.Time // entries, by their first token
	exclusive, greatest int64               // the greatest token of an exclusive hold, and of any
	waiting             atomic.Int32        // calls of Acquire that are under way
	busy                time.Time           // when it was held last, or nobody waited
}

// A worldHold is what somebody relies on: a lock, or a keep.
type worldHold struct {
	token int64
	limit int
	until func() time.Time
}

func (w *world) run(t *testing.T) {
	var stop func()
	w.ctx, stop = context.WithCancel(t.Context())
	var nodes []driver.Store
	for range w.nodes {
		nodes = append(nodes, memstore.New())
	}
	w.connect = func(fault faultstore.Fault) driver.Store {
		far := make([]driver.Store, len(nodes))
		for i, node := range nodes {
			net := faultstore.Wrap(node)
			setAll(net, fault)
			net.Set(faultstore.Notice, fault)
			net.Bend(w.bug)
			far[i] = net
		}
		store := far[0]
		if len(far) > 1 {
			store = quorumstore.New(far, &quorumstore.Options{Timeout: 300 * ms})
		}
		t.Cleanup(func() { w.check("Close of a store", store.Close()) })
		return store
	}
	w.store = w.connect(nil)
	for name := range 3 {
		w.names[string(rune('a'+name))] = &worldName{busy: time.Now(), broken: map[int64]time.Time{}}
	}
	end := time.Now().Add(worldSpan)
	var group sync.WaitGroup
	for i := range 5 * len(w.clients) {
		p := &player{w, rand.New(rand.NewPCG(w.seed, uint64(i))), &w.clients[i%len(w.clients)]}
		if i < len(w.clients) {
			p.client.Store(p.newClient())
		}
		group.Go(func() {
			for time.Now().Before(end) {
				p.play()
				p.sleep(2*time.Second, p.ctx)
			}
		})
	}
	go w.watch(stop)
	group.Wait()
	stop()
	for i := range w.clients {
		w.check("Close", w.clients[i].Load().Close())
	}
	time.Sleep(worldTTL + 3*worldDelay)
	for rec, err := range w.store.List(context.Background(), "") {
		w.violate("%v is left behind, %v", rec, err)
	}
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
		if op == faultstore.Notice {
			if fate < 20 {
				time.AfterFunc(delay, apply)
			}
			if fate >= 10 && fate < 45 {
				apply()
			}
			return nil
		}
		switch fate {
		case 0:
			return faultstore.Refuse(ctx, op, apply)
		case 1:
			return faultstore.Hang(ctx, op, apply)
		case 2:
			return faultstore.LoseReply(ctx, op, apply)
		case 3: // The reply is late.
			apply()
			return answersIn(delay)(ctx, op, func() {})
		case 4, 5: // The request is late, and is carried out though nobody waits for it.
			time.AfterFunc(delay, apply)
			return answersIn(delay+1)(ctx, op, func() {})
		case 6: // The request comes twice.
			if op != faultstore.Acquire {
				time.AfterFunc(delay, apply)
			}
		}
		apply()
		return nil
	}
}

func (w *world) violate(format string, args ...any) {
	fmt.Fprintf(&w.found, time.Now().Format("04:05.000000 ")+format+"\n", args...)
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
// than anybody has asked for, or is relied on for longer than a TTL after it was broken. It stops a
// world that does not end.
func (w *world) watch(stop func()) {
	for end := time.Now().Add(worldSpan + 2*time.Minute); w.ctx.Err() == nil; time.Sleep(500 * ms) {
		if time.Now().After(end) {
			w.violate("some call does not return")
			stop()
		}
		for name, n := range w.names {
			records, _ := w.store.Lookup(context.Background(), name)
			for _, rec := range records {
				if rec.Remaining > worldTTL {
					w.violate("%v, which is longer than asked for", rec)
				}
			}
			w.mu.Lock()
			if len(records) > 0 || n.waiting.Load() == 0 {
				n.busy = time.Now()
			} else if time.Since(n.busy) > 30*time.Second {
				w.violate("%d wait for %q, which is free", n.waiting.Load(), name)
			}
			for _, h := range n.holds {
				if at, broken := n.broken[h.token]; broken && h.until().Sub(at) > worldTTL {
					w.violate("token %d of %q was broken, and renewed until %v later", h.token, name, h.until().Sub(at))
				}
			}
			w.mu.Unlock()
		}
	}
}

// rely records a hold or a keep, and looks whether it is one too many.
func (w *world) rely(name string, h worldHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[name]
	n.busy = time.Now()
	n.holds = slices.DeleteFunc(append(n.holds, h), func(h worldHold) bool { return !h.until().After(time.Now()) })
	least, limits := driver.Shared, map[int64]int{} // by token
	for _, other := range n.holds {
		if !n.mayBeBroken(other.token) {
			least, limits[other.token] = min(least, other.limit), other.limit
		}
	}
	if limits[h.token] > 0 && (h.token < n.exclusive || h.limit == 1 && h.token < n.greatest) {
		w.violate("%q: token %d (limit %d) after %d and, of an exclusive hold, %d", name, h.token, h.limit, n.greatest, n.exclusive)
	}
	if limits[h.token] > 0 && len(limits) > least {
		w.violate("%q is held too often, limits by token: %v", name, limits)
	}
	if n.greatest = max(n.greatest, h.token); h.limit == 1 {
		n.exclusive = max(n.exclusive, h.token)
	}
}

// mayBeBroken reports whether the token may be one of an entry that was broken.
func (n *worldName) mayBeBroken(token int64) bool {
	for first := range n.broken {
		if first <= token && token < first+driver.MaxTokens {
			return true
		}
	}
	return false
}

// A player is a goroutine of a world.
type player struct {
	*world
	*rand.Rand
	client *atomic.Pointer[holdfast.Client]
}

func (p *player) newClient() *holdfast.Client {
	config := &holdfast.Config{RequestTimeout: time.Second, MaxOutage: 5 * time.Second, LocalTurn: time.Duration(p.IntN(4)) * 100 * ms}
	return holdfast.New(p.connect(networkFault(p.Uint64())), config)
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
	o = &holdfast.Options{TTL: worldTTL / time.Duration(1+p.IntN(8)), NoRenew: p.IntN(6) == 0, Detached: p.IntN(4) == 0}
	kind, limit := p.IntN(10), 1
	if kind < 4 && !p.store.Guarantees().Limits {
		kind = 9
	}
	switch kind {
	case 0, 1:
		o.Shared, limit = true, driver.Shared
	case 2, 3:
		limit = 2 + p.IntN(2)
		o.Limit = limit
	case 4:
		o.Reentrant = true
	case 5:
		o.MaxHold = p.upTo(20) * 100 * ms
	case 6, 7:
		*o = holdfast.Options{TTL: worldTTL} // of a lock that can be passed on
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
func (p *player) play() {
	c, names := p.client.Load(), []string{"a", "b", "c"}
	p.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	o, limit := p.options()
	ctx, cancel := context.WithTimeout(p.ctx, p.upTo(40*time.Second))
	defer cancel()
	if p.IntN(2) == 0 {
		ctx = p.ctx
	}
	switch chance := p.IntN(64); {
	case chance == 0:
		old := p.client.Swap(p.newClient()) // Another player may have done so, too.
		p.check("Close", old.Close())
	case chance < 4:
		p.check("ReleaseAll", c.ReleaseAll())
	case chance < 8:
		p.breakLock(names[0])
	case chance < 16:
		o.NoRenew = false
		if set, err := c.AcquireAll(ctx, names[:1+p.IntN(3)], o); p.check("AcquireAll", err) {
			p.use(set, set.Tokens(), limit)
			p.check("Release of a set", set.Release())
		}
	default:
		acquire, began := c.Acquire, time.Now()
		if chance < 24 {
			acquire, o.Wait = c.TryAcquire, 2*time.Second // two requests
		}
		waiting := &p.names[names[0]].waiting
		waiting.Add(1)
		lock, err := acquire(ctx, names[0], o)
		waiting.Add(-1)
		if took := time.Since(began); o.Wait > 0 && took > o.Wait+time.Second {
			p.violate("a Wait of %v took %v", o.Wait, took)
		}
		if p.check("Acquire", err) {
			p.useLock(lock, limit)
			p.giveUp(lock, o, limit)
		}
	}
}

// breakLock breaks one hold, or all, at the store itself, in the step in which it is noted. A break
// by a quorum takes a moment, which no hold can be compared with.
func (p *player) breakLock(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held, _ := p.store.Lookup(p.ctx, name)
	if len(held) > 0 && p.nodes == 1 {
		held, _ = p.store.Break(p.ctx, name, held[0].Token*p.Int64N(2))
		for _, rec := range held {
			p.names[name].broken[rec.Token] = time.Now()
		}
	}
}

func (p *player) useLock(lock *holdfast.Lock, limit int) {
	p.use(lock, map[string]int64{lock.Name(): lock.Token()}, limit)
}

// use relies on locks for a while, sometimes under Do: that relies on them after ReleaseAll, too.
func (p *player) use(locks interface {
	Err() error
	Deadline() time.Time
	Context() context.Context
	Do(context.Context, func(context.Context) error) error
	Release() error
}, tokens map[string]int64, limit int) {
	var underDo atomic.Bool
	work := func(context.Context) error {
		for name, token := range tokens {
			p.rely(name, worldHold{token, limit, func() time.Time {
				if err := locks.Err(); err == nil || underDo.Load() && errors.Is(err, holdfast.ErrReleased) {
					return locks.Deadline()
				}
				return time.Time{}
			}})
		}
		p.sleep(3*time.Second, locks.Context())
		if lock, ok := locks.(*holdfast.Lock); ok && p.IntN(3) == 0 {
			p.check("Extend", lock.Extend(p.ctx, p.upTo(worldTTL/10/ms)*10*ms))
			p.sleep(3*time.Second, lock.Context())
		}
		return nil
	}
	if p.IntN(4) > 0 {
		_ = work(p.ctx)
		return
	}
	p.check("Do", locks.Do(p.ctx, func(ctx context.Context) error {
		underDo.Store(true)
		defer underDo.Store(false)
		if _ = work(ctx); ctx.Err() != nil {
			p.check("Release in the work", locks.Release())
			p.check("a second Do", locks.Do(ctx, work))
			p.sleep(time.Second, p.ctx)
		}
		return nil
	}))
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
			p.rely(lock.Name(), worldHold{lock.Token(), limit, func() time.Time { return end }})
		}
	case way < 6 && o.Detached:
		if ticket, err := lock.HandOver(); p.check("HandOver", err) {
			p.sleep(time.Second, p.ctx)
			adopted, err := p.clients[p.IntN(len(p.clients))].Load().Adopt(p.ctx, ticket, nil)
			if p.check("Adopt", err) {
				p.useLock(adopted, limit)
				lock = adopted
			}
		}
	}
	p.check("Release", lock.Release())
}
