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
	t.Run("memory", func(t *testing.T) {
		testWorlds(t, 100, func(w *world) { w.useStore(memstore.New()) })
	})
	t.Run("quorum", func(t *testing.T) {
		testWorlds(t, 20, (*world).useQuorum) // Each has thousands of requests to nodes.
	})
}

func testWorlds(t *testing.T, worlds uint64, prepare func(*world)) {
	seed, err := strconv.ParseUint(os.Getenv("TEST_SEED"), 10, 64)
	if err == nil {
		worlds = 1
	} else if seed = rand.Uint64() >> 1; os.Getenv("TEST_WHOLE") != "" {
		worlds = 1000
	}
	for i := range worlds {
		if found := runWorld(t, prepare, seed+i); len(found) > 0 {
			t.Fatalf("TEST_SEED=%d: %s", seed+i, strings.Join(found[:min(len(found), 5)], "\n"))
		}
	}
}

// A world is the Clients and goroutines of one store.
type world struct {
	store   driver.Store                        // without faults
	connect func(faultstore.Fault) driver.Store // what a Client sees of it over a network
	calm    bool                                // no request and no notice is lost or late
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

func (w *world) useStore(store driver.Notifier) {
	w.store = store
	w.connect = func(fault faultstore.Fault) driver.Store {
		net := faultstore.Wrap(store)
		setAll(net, fault)
		net.Set(faultstore.Notice, fault)
		return net
	}
}

// useQuorum makes the world one of three memory stores, which are the same for each Client.
func (w *world) useQuorum() {
	var connects []func(faultstore.Fault) driver.Store
	var nodes []driver.Store
	for range 3 {
		w.useStore(memstore.New())
		nodes, connects = append(nodes, w.store), append(connects, w.connect)
	}
	w.store = quorumstore.New(nodes, nil)
	w.connect = func(fault faultstore.Fault) driver.Store {
		var far []driver.Store
		for _, connect := range connects {
			far = append(far, connect(fault))
		}
		return quorumstore.New(far, &quorumstore.Options{Timeout: 300 * ms})
	}
}

// runWorld returns what has gone wrong in a world.
func runWorld(t *testing.T, prepare func(*world), seed uint64) []string {
	w := &world{calm: seed%8 == 0, names: map[string]*worldName{}}
	synctest.Test(t, func(t *testing.T) {
		for _, name := range []string{"a", "b", "c"} {
			w.names[name] = &worldName{broken: map[int64]time.Time{}, busy: time.Now()}
		}
		prepare(w)
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range w.clients {
			w.clients[i].Store(w.newClient(t, random))
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := time.Now().Add(worldSpan)
		var group sync.WaitGroup
		for i := range 5 * len(w.clients) {
			p := &player{world: w, Rand: rand.New(rand.NewPCG(seed, uint64(i+1))), ctx: ctx, client: &w.clients[i%len(w.clients)]}
			group.Go(func() {
				for time.Now().Before(over) {
					p.play(t)
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

func (w *world) newClient(t *testing.T, random *rand.Rand) *holdfast.Client {
	fault := networkFault(rand.New(rand.NewPCG(random.Uint64(), 1)))
	if w.calm {
		fault = nil
	}
	store := w.connect(fault)
	t.Cleanup(func() { w.check("Close of a store", store.Close()) })
	turn := time.Duration(random.IntN(4)) * 100 * ms
	return holdfast.New(store, &holdfast.Config{RequestTimeout: time.Second, MaxOutage: 5 * time.Second, LocalTurn: turn})
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
		case fate == 6 && op != faultstore.Acquire: // It comes twice.
			time.AfterFunc(delay, apply)
		}
		apply()
		return nil
	}
}

// violateLocked notes a violation. The caller holds w.mu.
func (w *world) violateLocked(format string, args ...any) {
	w.violations = append(w.violations, time.Now().Format("04:05.000000 ")+fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(format, args...)
}

// check finds errors that no call may return. Every call may come too late, or be cut short.
func (w *world) check(call string, err error) {
	matches := func(target error) bool { return errors.Is(err, target) }
	if err != nil && !slices.ContainsFunc([]error{
		holdfast.ErrHeld, holdfast.ErrLost, holdfast.ErrReleased, holdfast.ErrNotHeld, holdfast.ErrUnavailable,
		holdfast.ErrClosed, holdfast.ErrInvalid /* of a handle on what others have */, context.Canceled, context.DeadlineExceeded,
	}, matches) {
		w.violate("%s: %v", call, err)
	}
}

// watch looks whether a name is free though somebody waits and nobody is served, or is held longer
// than anybody has asked for.
func (w *world) watch(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(500 * ms) {
		for name, n := range w.names {
			records, err := w.store.Lookup(context.Background(), name)
			w.mu.Lock()
			if len(records) > 0 || err != nil || n.waiting == 0 {
				n.busy = time.Now()
			} else if time.Since(n.busy) > worldStuck {
				w.violateLocked("%d wait for %q, which is free", n.waiting, name)
			}
			for _, rec := range records {
				if rec.Remaining > worldTTL {
					w.violateLocked("%v, which is longer than asked for", rec)
				}
			}
			w.mu.Unlock()
		}
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

// begin records a hold or a keep, and looks whether it is one too many.
func (w *world) begin(name string, h worldHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[name]
	n.holds = slices.DeleteFunc(append(n.holds, h), func(h worldHold) bool { return n.wasBroken(h.token) || !h.exists() })
	if len(n.holds) == 0 || n.holds[len(n.holds)-1].token != h.token {
		return // It has ended already.
	}
	if h.token < n.exclusive || h.limit == 1 && h.token < n.greatest {
		w.violateLocked("%q: token %d (limit %d) after %d and, of an exclusive hold, %d", name, h.token, h.limit, n.greatest, n.exclusive)
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
		w.violateLocked("%q is held too often, limits by token: %v", name, limits)
	}
}

// end checks a hold that was relied on.
func (w *world) end(lock *holdfast.Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[lock.Name()]
	if at, broken := n.broken[lock.Token()]; broken && lock.Deadline().Sub(at) > worldTTL {
		w.violateLocked("token %d was broken, and renewed until %v later", lock.Token(), lock.Deadline().Sub(at))
	}
	if w.calm && !n.wasBroken(lock.Token()) && errors.Is(lock.Err(), holdfast.ErrTaken) {
		w.violateLocked("%v, though nothing has failed", lock.Err())
	}
}
