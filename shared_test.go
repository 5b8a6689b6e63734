package holdfast_test

import (
	"context"
	"errors"
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

// A plain Acquire drains a semaphore, and a program with another Limit is judged by its own.
func TestLimitsOfOneName(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c := open(t, store, nil)
		limit := func(n int) *holdfast.Options { return &holdfast.Options{Limit: n} }
		one, two := acquire(t, c, "a", limit(2)), acquire(t, c, "a", limit(2))
		_, err := open(t, store, nil).TryAcquire(ctx, "a", limit(2))
		wantErr(t, err, holdfast.ErrHeld)
		if !strings.Contains(err.Error(), "(limit 2)") {
			t.Errorf("the error does not show the limit: %v", err)
		}
		three := acquire(t, c, "a", limit(3))
		reader := acquire(t, c, "a", shared)
		rec, err := c.Lookup(ctx, "a")
		if err != nil || rec.Token != one.Token() || rec.Limit != 2 || len(rec.Others) != 3 || rec.Others[2].Limit != driver.Shared {
			t.Errorf("Lookup: %+v, %v", rec, err)
		}
		drained := acquireLater(t, c, "a", nil)
		for _, lock := range []*holdfast.Lock{one, two, three, reader} {
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
		log := &requestLog{Store: memstore.New()}
		c, other := open(t, log, nil), open(t, log.Store, nil)
		writer := acquire(t, other, "a", nil)
		var waiting []<-chan *holdfast.Lock
		for range 20 {
			waiting = append(waiting, acquireLater(t, c, "a", shared))
		}
		release(t, writer)
		for _, w := range waiting {
			defer release(t, <-w)
		}
		if n := len(log.acquired()); n != 20 {
			t.Errorf("20 readers sent %d requests", n)
		}
	})
}

// A caller that gives up leaves nothing, whenever the grant comes.
func TestSharedCallersThatGiveUp(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a, b := open(t, store, nil), open(t, store, nil)
		for i := range 20 {
			writer := acquire(t, a, "a", nil)
			ctx, cancel := context.WithCancel(ctx)
			var group sync.WaitGroup
			for range 5 {
				group.Go(func() {
					if lock, err := b.Acquire(ctx, "a", shared); err == nil {
						release(t, lock)
					}
				})
			}
			synctest.Wait()
			if i%2 == 0 {
				go cancel()
				release(t, writer)
			} else {
				cancel()
				group.Wait()
				release(t, writer)
			}
			group.Wait()
			cancel()
			synctest.Wait()
			free(t, a, "a")
			if n := holdfast.QueueCount(b); n > 0 {
				t.Fatalf("%d queues are left", n)
			}
		}
	})
}

// Break ends all holds of a name, BreakToken one of them, and the Client that breaks its own knows
// of it at once.
func TestBreakOfSharedHolds(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		one, two, far := acquire(t, c, "a", shared), acquire(t, c, "a", shared), acquire(t, other, "a", shared)
		rec, err := c.BreakToken(ctx, "a", two.Token())
		if err != nil || rec.Token != two.Token() || len(rec.Others) != 0 {
			t.Errorf("BreakToken: %+v, %v", rec, err)
		}
		wantErr(t, two.Err(), holdfast.ErrLost, holdfast.ErrBroken)
		if one.Err() != nil {
			t.Errorf("the other hold: %v", one.Err())
		}
		rec, err = c.Break(ctx, "a")
		if err != nil || rec.Token != one.Token() || len(rec.Others) != 1 || rec.Others[0].Token != far.Token() {
			t.Errorf("Break: %+v, %v", rec, err)
		}
		wantErr(t, one.Err(), holdfast.ErrLost, holdfast.ErrBroken)
		time.Sleep(holdfast.DefaultTTL / 3)
		synctest.Wait()
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
		if !errors.As(err, &held) || held.Self || !strings.Contains(err.Error(), "held by A (shared), for 30s unless renewed, 1 waiting; another waiter comes first") {
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
			{Limit: -1}, {Limit: driver.MaxLimit + 1}, {Shared: true, Limit: 2}, {Shared: true, Reentrant: true}, {Limit: 2, Reentrant: true},
		} {
			_, err := c.TryAcquire(ctx, "a", &o)
			wantErr(t, err, holdfast.ErrInvalid)
		}
		exclusive := open(t, exclusiveStore{memstore.New()}, nil)
		for _, o := range []holdfast.Options{{Shared: true}, {Limit: 1}} {
			_, err := exclusive.TryAcquire(ctx, "a", &o)
			wantErr(t, err, holdfast.ErrUnsupported)
			if !strings.Contains(err.Error(), "the memory store has no ") {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}

// An exclusiveStore claims no shared and no limited holds.
type exclusiveStore struct{ driver.Store }

func (s exclusiveStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.Shared, g.Limited = false, false
	return g
}

// A queueStore records the greatest Queue of its requests.
type queueStore struct {
	*faultstore.Store
	greatest atomic.Int64
}

func (s *queueStore) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	s.greatest.Store(max(s.greatest.Load(), int64(req.Queue)))
	return s.Store.Acquire(ctx, req)
}

// A waiter that is stopped keeps others out for as long as its last request has asked for. That is
// at most 5 s, on a store without a queue as well, and long enough for the next request.
func TestStoppedWaiterKeepsOthersOut(t *testing.T) {
	for name, store := range map[string]*faultstore.Store{
		"queue":    faultstore.Wrap(memstore.New()),
		"no queue": faultstore.Wrap(memstore.New()).Unfair(),
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				s := &queueStore{Store: store}
				a, b := open(t, s, nil), open(t, s, nil)
				lock := acquire(t, a, "a", nil)
				time.AfterFunc(time.Minute, func() { release(t, lock) })
				acquire(t, b, "a", nil)
				if d := time.Duration(s.greatest.Load()); d <= 2*time.Second || d > 5*time.Second {
					t.Errorf("a waiter has asked for %v", d)
				}
			})
		})
	}
}
