package holdfast_test

import (
	"context"
	"errors"
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

// acquireLater acquires a lock in a goroutine of its own, which waits when acquireLater returns.
func acquireLater(t *testing.T, c *holdfast.Client, name string, o *holdfast.Options) <-chan *holdfast.Lock {
	t.Helper()
	got := make(chan *holdfast.Lock, 1)
	go func() { got <- acquire(t, c, name, o) }()
	synctest.Wait()
	select {
	case lock := <-got:
		t.Fatalf("%v was acquired at once", lock)
	default:
	}
	return got
}

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
		_, err := a.TryAcquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrHeld)
		writer := acquireLater(t, b, "a", nil)
		_, err = a.TryAcquire(ctx, "a", shared)
		wantErr(t, err, holdfast.ErrHeld)
		later := []<-chan *holdfast.Lock{acquireLater(t, a, "a", shared), acquireLater(t, b, "a", shared)}
		time.Sleep(5 * holdfast.DefaultTTL)
		for _, lock := range readers {
			select {
			case lock := <-writer:
				t.Fatalf("%v was acquired beside readers", lock)
			default:
			}
			release(t, lock)
		}
		lock := <-writer
		if lock.Token() <= readers[2].Token() || readers[0].Token() >= readers[1].Token() {
			t.Errorf("the writer has token %d after readers with %d, %d and %d",
				lock.Token(), readers[0].Token(), readers[1].Token(), readers[2].Token())
		}
		time.Sleep(5 * holdfast.DefaultTTL)
		select {
		case lock := <-later[0]:
			t.Fatalf("%v was acquired beside the writer", lock)
		default:
		}
		release(t, lock)
		for _, waiting := range later {
			reader := <-waiting
			if reader.Token() <= lock.Token() {
				t.Errorf("a reader has token %d after a writer with %d", reader.Token(), lock.Token())
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
					began := time.Now()
					lock := acquire(t, c, "a", nil)
					if waited := time.Since(began); waited > 230*ms {
						t.Errorf("a writer has waited for %v, among readers and a writer of up to 110ms", waited)
					}
					time.Sleep(5 * ms)
					release(t, lock)
				})
			}
			writers.Wait()
		}
		stop()
		group.Wait()
	})
}

// As many holds with a Limit are together as it allows, and a plain hold is alone. Waiters are served
// in order, so that a plain one is not starved.
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
			_, err := open(t, store, nil).TryAcquire(ctx, "a", o)
			wantErr(t, err, holdfast.ErrHeld)
			if !strings.Contains(err.Error(), "(limit 4)") {
				t.Errorf("the error does not show the limit: %v", err)
			}
		}
		records, err := c.Lookup(ctx, "a")
		if err != nil || len(records) != 3 || records[0].Token != one.Token() || records[0].Limit != 4 || records[1].Limit != driver.Shared {
			t.Errorf("Lookup: %v, %v", records, err)
		}
		drained := acquireLater(t, c, "a", nil)
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
		writer := acquireLater(t, open(t, store, nil), "a", nil)
		time.Sleep(9 * time.Second)
		release(t, reader)
		time.Sleep(990 * ms)
		select {
		case <-writer:
			t.Fatal("the writer has it beside the reader that is not renewed")
		default:
		}
		began := time.Now()
		release(t, <-writer)
		// Its place is renewed every 5/3 seconds, which admits it.
		if waited := time.Since(began); waited > 5*time.Second/3+12*ms {
			t.Errorf("the writer got it %v after the end of the dead reader", waited)
		}
	})
}

// All readers behind a writer are admitted by its release, each by one notice and without further
// requests to acquire.
func TestReadersAreAdmittedTogether(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := open(t, store.Store, nil)
		writer := acquire(t, other, "a", nil)
		var waiting []<-chan *holdfast.Lock
		for range 20 {
			waiting = append(waiting, acquireLater(t, c, "a", shared))
		}
		release(t, writer)
		for _, w := range waiting {
			defer release(t, <-w)
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
		written := make(chan error)
		go func() {
			lock, err := other.Acquire(ctx, "a", nil)
			if err == nil {
				err = lock.Release()
			}
			written <- err
		}()
		synctest.Wait()
		_, err := c.TryAcquire(ctx, "a", shared)
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Self || !strings.Contains(err.Error(), "held by A (shared), for 30s unless renewed, 1 waiting") {
			t.Errorf("a reader behind a writer: %v", err)
		}
		release(t, one)
		release(t, two)
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

// ReleaseKeep keeps the share of a hold, and no more.
func TestLimitWithReleaseKeep(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		o := &holdfast.Options{Limit: 3}
		began := time.Now()
		for i := range 9 {
			if err := acquire(t, c, "a", o).ReleaseKeep(time.Second); err != nil {
				t.Error(err)
			}
			if want := time.Duration(i/3) * time.Second; time.Since(began).Truncate(20*ms) != want {
				t.Errorf("start %d is %v after the first, want %v", i, time.Since(began), want)
			}
		}
	})
}

// A hold among others is handed to another process.
func TestHandOverOfASharedHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		acquire(t, c, "a", shared)
		lock := acquire(t, c, "a", &holdfast.Options{Shared: true, Detached: true, Metadata: map[string]string{"for": "it"}})
		ticket, err := lock.HandOver()
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := other.Adopt(ctx, ticket, nil)
		if err != nil || adopted.Token() != lock.Token() || adopted.Metadata()["for"] != "it" {
			t.Fatalf("Adopt: %v, %v", adopted, err)
		}
		release(t, adopted)
		_, err = other.Adopt(ctx, ticket, nil)
		wantErr(t, err, holdfast.ErrNotHeld)
	})
}

// Options that contradict each other are refused, and so is what the store cannot do.
func TestInvalidLimits(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		for _, o := range []holdfast.Options{
			{Limit: -1}, {Limit: driver.Shared + 1}, {Shared: true, Limit: 2}, {Shared: true, Reentrant: true}, {Limit: 2, Reentrant: true},
		} {
			_, err := c.TryAcquire(ctx, "a", &o)
			wantErr(t, err, holdfast.ErrInvalid)
		}
		exclusive := open(t, exclusiveStore{memstore.New()}, nil)
		for _, o := range []holdfast.Options{{Shared: true}, {Limit: 2}} {
			_, err := exclusive.Acquire(ctx, "a", &o)
			wantErr(t, err, holdfast.ErrUnsupported)
		}
		release(t, acquire(t, exclusive, "a", &holdfast.Options{Limit: 1}))
	})
}

// An exclusiveStore has no shared and no limited holds.
type exclusiveStore struct{ driver.Store }

func (s exclusiveStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.Limits = false
	return g
}

func (s exclusiveStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	if req.Limit > 1 {
		return driver.Result{}, driver.ErrUnsupported
	}
	return s.Store.Acquire(ctx, req)
}
