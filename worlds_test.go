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
// network that loses, delays and doubles. What a store does wrong is found within a few worlds.
// TEST_WHOLE runs a thousand, TEST_SEED one of them again; the order of what happens in one moment
// is not part of the seed.
func TestWorlds(t *testing.T) {
	for name, test := range map[string]struct {
		nodes, worlds int
		bug           func(any) // what changes requests and results
	}{
		"memory":                      {1, 60, nil},
		"quorum":                      {3, 6, nil}, // A world has more requests.
		"half of the TTL":             {1, 40, faultstore.Bent(func(r *driver.Request) { r.TTL = max(r.TTL/2, driver.MinTTL) })},
		"a hold outlives its TTL":     {1, 40, faultstore.Bent(func(r *driver.Request) { r.TTL = driver.MaxTTL })},
		"a plain lock tolerates more": {1, 40, faultstore.Bent(func(r *driver.Request) { r.Limit, r.Tokens = max(r.Limit, 2), 0 })},
		"limits are ignored":          {1, 40, faultstore.Bent(func(r *driver.Request) { r.Limit = min(r.Limit/2, 1) * driver.Shared })},
		"tokens fall":                 {1, 40, faultstore.Bent(func(res *driver.Result) { res.Token = driver.MaxToken - res.Token })},
		"a wait is a grant":           {1, 40, faultstore.Bent(func(res *driver.Result) { res.Granted = res.Granted || res.Waiting })},
		"a lost hold is renewed":      {1, 40, instead(driver.Lost, driver.Held)},
		"a place is a hold":           {1, 40, instead(driver.Waiting, driver.Held)},
		"a place outlives its hold":   {1, 40, instead(driver.Lost, driver.Waiting)},
		"a keep is ignored":           {1, 40, faultstore.Bent(func(r *driver.ReleaseRequest) { r.Keep = 0 })},
		"damage is found":             {1, 40, faultstore.Bent(func(err *error) { *err = driver.ErrCorrupt })},
	} {
		t.Run(name, func(t *testing.T) {
			seed, err := strconv.ParseUint(os.Getenv("TEST_SEED"), 10, 64)
			if err == nil {
				test.worlds = 1
			} else if seed = rand.Uint64() >> 1; os.Getenv("TEST_WHOLE") != "" && test.bug == nil {
				test.worlds = 1000
			}
			found := ""
			for end := seed + uint64(test.worlds); seed < end && found == ""; seed++ {
				w := &world{seed: seed, bug: test.bug}
				synctest.Test(t, func(t *testing.T) { w.run(t, test.nodes) })
				found = w.found.String()
			}
			if (found != "") != (test.bug != nil) {
				t.Errorf("TEST_SEED=%d, found: %.500s", seed-1, found)
			}
		})
	}
}

// A world is what Clients and goroutines do with three names of one store.
type world struct {
	*testing.T
	ctx     context.Context // ends when all calls must have returned
	seed    uint64
	bug     func(any)
	nodes   []driver.Store // several are a quorum
	clients [4]atomic.Pointer[holdfast.Client]

	mu            sync.Mutex
	holds, broken []worldHold
	found         logText // what has gone wrong
}

// A worldHold is what somebody has relied on: a lock, or a keep. Of one that was broken it is the
// first token, and when that was.
type worldHold struct {
	name               string // Two names may have the same token.
	token              int64
	limit              int
	from, to, deadline time.Time
}

func (w *world) run(t *testing.T, nodes int) {
	ctx, stop := context.WithTimeout(t.Context(), worldSpan+2*time.Minute)
	defer stop()
	w.T, w.ctx = t, ctx
	for range nodes {
		w.nodes = append(w.nodes, memstore.New())
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
				p.sleep(2*time.Second, ctx)
			}
		})
	}
	if group.Wait(); ctx.Err() != nil {
		w.violate("some call does not return")
	}
	for i := range w.clients {
		w.check("Close", w.clients[i].Load().Close())
	}
	time.Sleep(worldTTL + 3*worldDelay)
	for _, node := range w.nodes {
		for rec, err := range node.List(context.Background(), "") {
			w.violate("%v is left behind, %v", rec, err)
		}
	}
	w.compare()
}

func (w *world) violate(format string, args ...any) {
	fmt.Fprintf(&w.found, time.Now().Format("04:05.000000 ")+format+"\n", args...)
}

// check reports whether a call has succeeded. It may come too late, or be cut short. ErrInvalid is
// that of a handle on what others have.
func (w *world) check(call string, err error) bool {
	for _, expected := range []error{
		nil, holdfast.ErrHeld, holdfast.ErrLost, holdfast.ErrReleased, holdfast.ErrNotHeld, holdfast.ErrUnavailable,
		holdfast.ErrClosed, holdfast.ErrInvalid, context.DeadlineExceeded,
	} {
		if errors.Is(err, expected) {
			return err == nil
		}
	}
	w.violate("%s: %v", call, err)
	return false
}

// relied notes holds or a keep that somebody has relied on.
func (w *world) relied(tokens map[string]int64, o *holdfast.Options, from, to, deadline time.Time) {
	limit := max(o.Limit, 1)
	if o.Shared {
		limit = driver.Shared
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, token := range tokens {
		w.holds = append(w.holds, worldHold{name, token, limit, from, to, deadline})
	}
}

// compare looks whether holds of a name were together that do not tolerate each other, or had
// tokens that fall. What may be of an entry that was broken is compared with nothing, but is over a
// TTL later.
func (w *world) compare() {
	w.mu.Lock()
	defer w.mu.Unlock()
	holds := slices.DeleteFunc(w.holds, func(h worldHold) bool {
		i := slices.IndexFunc(w.broken, func(b worldHold) bool {
			return b.name == h.name && b.token <= h.token && h.token < b.token+driver.MaxTokens
		})
		if i >= 0 && w.broken[i].token == h.token && h.deadline.Sub(w.broken[i].to) > worldTTL {
			w.violate("%v was broken at %v", h, w.broken[i].to)
		}
		return i >= 0 || !h.from.Before(h.to) // A keep was over when it was confirmed.
	})
	for _, h := range holds {
		least, tokens := h.limit, map[int64]bool{}
		for _, other := range holds {
			switch {
			case other.name != h.name:
			case other.from.Before(h.from) && other.token > h.token && min(h.limit, other.limit) == 1:
				w.violate("the tokens fall, %v and then %v", other, h)
				return
			case !other.from.After(h.from) && h.from.Before(other.to):
				least, tokens[other.token] = min(least, other.limit), true
			}
		}
		if len(tokens) > least {
			w.violate("it is held too often: %v, by %d", h, len(tokens))
			return
		}
	}
}

// A player is a goroutine of a world.
type player struct {
	*world
	*rand.Rand
	client *atomic.Pointer[holdfast.Client]
}

// newClient returns a Client behind a network with faults.
func (p *player) newClient() *holdfast.Client {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(p.Uint64(), 0))
	network := func(ctx context.Context, op faultstore.Op, apply func()) error {
		mu.Lock()
		fate, delay := random.IntN(50), time.Duration(random.Int64N(int64(worldDelay)))
		mu.Unlock()
		late := func() { time.AfterFunc(delay, apply) }
		switch notice := op == faultstore.Notice; {
		case notice && fate < 10:
			late()
			return nil
		case notice && fate < 15, fate == 0 && op != faultstore.Acquire: // It comes twice.
			late()
		case notice:
		case fate < 3: // Nobody may wait for the reply any more.
			late()
			return answersIn(delay+1)(ctx, op, func() {})
		case fate == 3:
			apply()
			return answersIn(delay)(ctx, op, func() {})
		case fate == 4:
			return faultstore.LoseReply(ctx, op, apply)
		case fate == 5:
			return faultstore.ErrRefused
		case fate == 6:
			return faultstore.Hang(ctx, op, apply)
		}
		apply()
		return nil
	}
	var far []driver.Store
	for _, node := range p.nodes {
		net := faultstore.Wrap(node)
		setAll(net, network)
		net.Set(faultstore.Notice, network)
		if p.bug != nil {
			net.Bend(p.bug)
		}
		far = append(far, net)
	}
	store := far[0]
	if len(far) > 1 {
		store = quorumstore.New(far, &quorumstore.Options{Timeout: 300 * ms})
	}
	p.Cleanup(func() { p.check("Close of a store", store.Close()) })
	return holdfast.New(store, &holdfast.Config{
		RequestTimeout: time.Second, MaxOutage: 5 * time.Second, LocalTurn: time.Duration(p.IntN(4)) * 100 * ms,
	})
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

// options returns random options.
func (p *player) options() *holdfast.Options {
	o := &holdfast.Options{TTL: worldTTL / time.Duration(1+p.IntN(8)), NoRenew: p.IntN(6) == 0, Detached: p.IntN(4) == 0}
	switch kind, limits := p.IntN(10), p.client.Load().Guarantees().Limits; {
	case kind < 2:
		o.Shared = limits
	case kind < 4 && limits:
		o.Limit = 2 + p.IntN(2)
	case kind == 4:
		o.Reentrant = true
	case kind == 5:
		o.MaxHold = p.upTo(20) * 100 * ms
	case kind < 8:
		*o = holdfast.Options{TTL: worldTTL} // of a lock that can be passed on
	}
	switch p.IntN(4) {
	case 0:
		o.Wait = p.upTo(10 * time.Second)
	case 1:
		o.MaxAttempts = 1 + p.IntN(4)
	}
	return o
}

// play does one thing that a Client can do. A break is one of the store itself, in the step in
// which it is noted: that by a quorum takes a moment, which no hold can be compared with.
func (p *player) play() {
	c, names, o := p.client.Load(), []string{"a", "b", "c"}, p.options()
	p.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	name := names[0]
	ctx, cancel := context.WithTimeout(p.ctx, p.upTo(40*time.Second)*time.Duration(1+100*p.IntN(2)))
	defer cancel()
	switch chance := p.IntN(64); {
	case chance == 0:
		old := p.client.Swap(p.newClient()) // Another player may have done so, too.
		p.check("Close", old.Close())
	case chance < 4:
		p.check("ReleaseAll", c.ReleaseAll())
	case chance < 8 && len(p.nodes) == 1:
		p.mu.Lock()
		defer p.mu.Unlock()
		if held, _ := p.nodes[0].Lookup(ctx, name); len(held) > 0 {
			if held[0].Remaining > worldTTL {
				p.violate("%v, which is longer than asked for", held[0])
			}
			held, _ = p.nodes[0].Break(ctx, name, held[0].Token*p.Int64N(2))
			for _, rec := range held {
				p.broken = append(p.broken, worldHold{name: name, token: rec.Token, to: time.Now()})
			}
		}
	case chance < 16:
		o.NoRenew = false
		if set, err := c.AcquireAll(ctx, names[:1+p.IntN(3)], o); p.check("AcquireAll", err) {
			p.use(set, set.Tokens(), o)
			p.check("Release of a set", set.Release())
		}
	default:
		acquire, began := c.Acquire, time.Now()
		if chance < 24 {
			acquire, o.Wait = c.TryAcquire, 3*time.Second // three requests
		}
		lock, err := acquire(ctx, name, o)
		if took := time.Since(began); o.Wait > 0 && took > o.Wait+time.Second {
			p.violate("a Wait of %v took %v", o.Wait, took)
		}
		if p.check("Acquire", err) {
			tokens := map[string]int64{name: lock.Token()}
			p.use(lock, tokens, o)
			p.giveUp(lock, tokens, o)
		}
	}
}

// use relies on locks until their context ends, and does so for a while, sometimes under Do: that
// relies on them after ReleaseAll, too.
func (p *player) use(locks interface {
	Err() error
	Deadline() time.Time
	Context() context.Context
	Do(context.Context, func(context.Context) error) error
	Release() error
}, tokens map[string]int64, o *holdfast.Options) {
	from := time.Now()
	context.AfterFunc(locks.Context(), func() { p.relied(tokens, o, from, time.Now(), locks.Deadline()) })
	work := func(ctx context.Context) error {
		p.sleep(3*time.Second, locks.Context())
		if lock, ok := locks.(*holdfast.Lock); ok && p.IntN(3) == 0 {
			p.check("Extend", lock.Extend(p.ctx, p.upTo(worldTTL/10/ms)*10*ms))
			p.sleep(3*time.Second, lock.Context())
		}
		if ctx != p.ctx && errors.Is(locks.Err(), holdfast.ErrReleased) {
			p.check("Release in the work", locks.Release())
			p.check("a second Do", locks.Do(ctx, nothing))
			p.sleep(time.Second, p.ctx)
			p.relied(tokens, o, from, time.Now().Add(min(0, time.Until(locks.Deadline()))), locks.Deadline())
		}
		return nil
	}
	if p.IntN(4) > 0 {
		_ = work(p.ctx)
	} else {
		p.check("Do", locks.Do(p.ctx, work))
	}
}

// giveUp gives a lock up in one of the ways there are.
func (p *player) giveUp(lock *holdfast.Lock, tokens map[string]int64, o *holdfast.Options) {
	switch way := p.IntN(10); {
	case way == 0 && o.NoRenew && !o.Reentrant: // It expires.
		return
	case way < 3:
		d, began := max(p.upTo(worldTTL), driver.MinTTL), time.Now()
		if p.check("ReleaseKeep", lock.ReleaseKeep(d)) {
			p.relied(tokens, o, time.Now(), began.Add(d), time.Time{})
		}
	case way < 6 && o.Detached:
		if ticket, err := lock.HandOver(); p.check("HandOver", err) {
			p.sleep(time.Second, p.ctx)
			adopted, err := p.clients[p.IntN(len(p.clients))].Load().Adopt(p.ctx, ticket, nil)
			if p.check("Adopt", err) {
				p.use(adopted, tokens, o)
				lock = adopted
			}
		}
	}
	p.check("Release", lock.Release())
}
