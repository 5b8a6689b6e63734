package holdfast_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

var shared = &holdfast.Options{Shared: true}

// Readers hold a lock together, within a Client and over Clients; a writer holds it alone. Each has
// a token of its own, in the order of the grants, and a writer waits for the readers that came
// before it, and for no later ones.
func TestSharedLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a, b := open(t, store, nil), open(t, store, nil)
		readers := []*holdfast.Lock{
			acquire(t, a, "a", shared), acquire(t, a, "a", shared), acquire(t, b, "a", shared),
		}
		wantErr(t, failure(a.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		writer := startWaiters(t, b, "a", 1)
		wantErr(t, failure(a.TryAcquire(ctx, "a", shared)), holdfast.ErrHeld)
		later := []<-chan *holdfast.Lock{startWaiting(t, a, "a", shared, 1), startWaiting(t, b, "a", shared, 1)}
		time.Sleep(5 * holdfast.DefaultTTL)
		last := int64(0)
		for _, lock := range readers {
			waits(t, writer)
			if lock.Token() <= last {
				t.Errorf("token %d after %d", lock.Token(), last)
			}
			last = lock.Token()
			release(t, lock)
		}
		lock := <-writer
		time.Sleep(5 * holdfast.DefaultTTL)
		waits(t, later[0])
		release(t, lock)
		for _, waiting := range later {
			reader := <-waiting
			if reader.Token() <= lock.Token() || lock.Token() <= last {
				t.Errorf("a reader has token %d after a writer with %d, after %d", reader.Token(), lock.Token(), last)
			}
			defer release(t, reader)
		}
	})
}

// A writer gets a lock that always has readers, and so does one of each of two Clients.
func TestWriterIsNotStarved(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		clients := []*holdfast.Client{open(t, store, nil), open(t, store, nil)}
		ctx, stop := context.WithCancel(ctx)
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				for ctx.Err() == nil {
					if lock, err := clients[i%2].Acquire(ctx, "a", shared); err == nil {
						time.Sleep(time.Duration(90+2*i) * ms)
						release(t, lock)
					}
				}
			})
		}
		time.Sleep(time.Second)
		for range 20 {
			var writers sync.WaitGroup
			for _, c := range clients {
				writers.Go(func() {
					// Before it are readers and a writer, of up to 110 ms.
					noErr(t, within(t, 0, 230*ms, func() error { return failure(c.Acquire(ctx, "a", nil)) }))
					time.Sleep(5 * ms)
					release(t, c.Locks()[0])
				})
			}
			writers.Wait()
		}
		stop()
		group.Wait()
	})
}

// As many holds with a Limit are together as it allows, and a plain hold is alone. Waiters are
// served in order, so that a plain one is not starved.
func TestLimit(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		clients := []*holdfast.Client{open(t, store, nil), open(t, store, nil), open(t, store, nil)}
		var mu sync.Mutex
		used, most := 0, 0
		add := func(weight int) {
			mu.Lock()
			defer mu.Unlock()
			if used += weight; used > 10 {
				t.Errorf("%d are held, of 10", used)
			}
			most = max(most, used)
		}
		var group sync.WaitGroup
		for i := range 60 {
			o, weight := &holdfast.Options{Limit: 10}, 1
			if i%8 == 0 {
				o, weight = nil, 10
			}
			group.Go(func() {
				for range 5 {
					lock := acquire(t, clients[i%3], "a", o)
					add(weight)
					time.Sleep(time.Duration(1+i) * ms)
					add(-weight)
					release(t, lock)
				}
			})
		}
		group.Wait()
		if most != 10 {
			t.Errorf("at most %d of 10 were held", most)
		}
		free(t, clients[0], "a")
	})
}

// As many hold together as the least Limit among them allows. A plain Acquire drains a semaphore.
func TestLimitsOfOneName(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c := open(t, store, nil)
		limit := func(n int) *holdfast.Options { return &holdfast.Options{Limit: n} }
		one, two, three := acquire(t, c, "a", limit(4)), acquire(t, c, "a", shared), acquire(t, c, "a", limit(3))
		for _, o := range []*holdfast.Options{limit(2), limit(3), limit(4), shared, nil} {
			err := failure(open(t, store, nil).TryAcquire(ctx, "a", o))
			wantErr(t, err, holdfast.ErrHeld)
			if !strings.Contains(err.Error(), "one of 4 slots") {
				t.Errorf("the error does not show the limit: %v", err)
			}
		}
		records, err := c.Lookup(ctx, "a")
		if err != nil || len(records) != 3 || records[0].Token != one.Token() || records[0].Limit != 4 || records[1].Limit != driver.Shared {
			t.Errorf("Lookup: %v, %v", records, err)
		}
		drained := startWaiters(t, c, "a", 1)
		for _, lock := range []*holdfast.Lock{one, two, three} {
			release(t, lock)
		}
		release(t, <-drained)
	})
}

// Each hold has a lease of its own: a dead reader delays a writer until the end of its own TTL,
// however often the others are renewed.
func TestDeadReader(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, dead := open(t, store, nil), open(t, store, nil)
		reader := acquire(t, c, "a", shared)
		acquire(t, dead, "a", &holdfast.Options{Shared: true, NoRenew: true, TTL: 10 * time.Second})
		writer := startWaiters(t, open(t, store, nil), "a", 1)
		time.Sleep(9 * time.Second)
		release(t, reader)
		time.Sleep(990 * ms)
		waits(t, writer)
		// Its place is renewed every 5/3 seconds, which admits it.
		noErr(t, within(t, 0, 5*time.Second/3+12*ms, func() error { return (<-writer).Release() }))
	})
}

// All readers behind a writer are admitted by its release, each by one notice and without further
// requests to acquire.
func TestReadersAreAdmittedTogether(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		writer := acquire(t, open(t, store.Store, nil), "a", nil)
		waiting := startWaiting(t, c, "a", shared, 20)
		release(t, writer)
		for range 20 {
			defer release(t, <-waiting)
		}
		if n := store.Calls(faultstore.Acquire); n != 20 {
			t.Errorf("20 readers sent %d requests", n)
		}
	})
}

// Break ends all holds of a name or one of them, and the Client that breaks its own knows
// of it at once.
func TestBreakOfSharedHolds(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		one, two, far := acquire(t, c, "a", shared), acquire(t, c, "a", shared), acquire(t, other, "a", shared)
		wantErr(t, failure(other.Break(ctx, "a", 1)), holdfast.ErrNotHeld)
		wantErr(t, failure(other.Break(ctx, "a", -1)), holdfast.ErrInvalid)
		records, err := c.Break(ctx, "a", two.Token())
		if err != nil || len(records) != 1 || records[0].Token != two.Token() {
			t.Errorf("Break of a token: %v, %v", records, err)
		}
		wantErr(t, two.Err(), holdfast.ErrLost, holdfast.ErrTaken)
		if one.Err() != nil {
			t.Errorf("the other hold: %v", one.Err())
		}
		records, err = c.Break(ctx, "a", 0)
		if err != nil || len(records) != 2 || records[0].Token != one.Token() || records[1].Token != far.Token() {
			t.Errorf("Break: %v, %v", records, err)
		}
		wantErr(t, one.Err(), holdfast.ErrLost, holdfast.ErrTaken)
		synctest.Wait() // The store has notified the other Client.
		wantErr(t, far.Err(), holdfast.ErrLost, holdfast.ErrTaken)
	})
}

// A reader behind a waiting writer does not wait for the other reader of its Client.
func TestReaderBehindAWriter(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, &holdfast.Config{Holder: "A"}), open(t, store, nil)
		one, two := acquire(t, c, "a", shared), acquire(t, other, "a", shared)
		writer := startWaiters(t, other, "a", 1)
		err := failure(c.TryAcquire(ctx, "a", shared))
		if held := heldError(t, err); !held.Self || !strings.Contains(err.Error(), `, shared, 30s left, 1 waiting`) {
			t.Errorf("a reader behind a writer: %v", err)
		}
		release(t, one)
		release(t, two)
		release(t, <-writer)
	})
}

// ReleaseKeep keeps the share of a hold, and no more.
func TestLimitWithReleaseKeep(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		o := &holdfast.Options{Limit: 3}
		began := time.Now()
		for i := range 9 {
			noErr(t, acquire(t, c, "a", o).ReleaseKeep(time.Second))
			if want := time.Duration(i/3) * time.Second; time.Since(began).Truncate(20*ms) != want {
				t.Errorf("start %d is %v after the first, want %v", i, time.Since(began), want)
			}
		}
	})
}
