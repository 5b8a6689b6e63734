package election_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// until leads until its context ends.
func until(ctx context.Context, _ election.Term) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestResignationHandsOver: where the store wakes waiters, another candidate leads at once, and the
// one that resigned does not stand again before its ResignDelay is over.
func TestResignationHandsOver(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		elected := make(chan string, 16)
		first := election.New(storetest.Client(t, store, "first"), "office", &election.Options{ResignDelay: 5 * time.Second})
		second := election.New(storetest.Client(t, store, "second"), "office", nil)
		stand := func(name string, e *election.Election) {
			err := e.Run(ctx, func(ctx context.Context, _ election.Term) error {
				elected <- name
				return until(ctx, election.Term{})
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run of %s: %v", name, err)
			}
		}
		go stand("first", first)
		synctest.Wait()
		go stand("second", second)
		synctest.Wait()

		began := time.Now()
		if err := first.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if took := time.Since(began); took > 0 || len(elected) != 2 {
			t.Errorf("after %v there were %d terms, want 2", took, len(elected))
		}
		if err := second.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(elected) != 2 {
			t.Error("the candidate that resigned stands again too soon")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, leads := second.Leading(); !leads || len(elected) != 3 {
			t.Errorf("the second stands again after a second: %v, %d terms", leads, len(elected))
		}
		cancel()
		synctest.Wait()
	})
}

// TestSilentLeaderIsReplaced: a leader that cannot reach the store any more is succeeded when the
// TTL is over, its context has ended by then with the reason, and it stands again when it can.
func TestSilentLeaderIsReplaced(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		const ttl = 10 * time.Second
		cutOff := faultstore.Wrap(store)
		set := func(fault faultstore.Fault) {
			for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
				cutOff.Set(op, fault)
			}
		}
		type ending struct {
			at     time.Time
			reason error
		}
		ended, elected := make(chan ending, 9), make(chan time.Time, 9)
		first := election.New(storetest.Client(t, cutOff, "first"), "office", &election.Options{TTL: ttl})
		second := election.New(storetest.Client(t, store, "second"), "office", &election.Options{TTL: ttl})
		go first.Run(ctx, func(ctx context.Context, term election.Term) error {
			<-ctx.Done()
			ended <- ending{time.Now(), context.Cause(ctx)}
			return nil
		})
		synctest.Wait()
		go second.Run(ctx, func(ctx context.Context, term election.Term) error {
			elected <- time.Now()
			return until(ctx, term)
		})
		time.Sleep(5 * ttl)
		if len(elected) != 0 {
			t.Fatal("two lead")
		}
		cut := time.Now()
		set(faultstore.Hang)
		end, began := <-ended, <-elected
		if !errors.Is(end.reason, holdfast.ErrExpired) || !end.at.Before(began) {
			t.Errorf("the first term ended %v after the cut with %v, the second began after %v", end.at.Sub(cut), end.reason, began.Sub(cut))
		}
		if gap := began.Sub(cut); gap > ttl+store.Guarantees().Grain+10*time.Millisecond {
			t.Errorf("the second was elected %v after the cut, TTL %v", gap, ttl)
		}
		time.Sleep(ttl)
		set(nil)
		time.Sleep(ttl)
		if err := second.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if term, leads := first.Leading(); !leads {
			t.Errorf("the first does not lead again: %+v", term)
		}
		cancel()
		synctest.Wait()
	})
}

// TestRunReturns: what the function returns while it leads ends Run, and the lock is free then.
func TestRunReturns(t *testing.T) {
	ours := errors.New("disk full")
	for _, want := range []error{nil, ours} {
		storetest.Virtual(t, func(t *testing.T, store driver.Store) {
			locks := storetest.Client(t, store, "leader")
			e := election.New(locks, "office", nil)
			var term context.Context
			err := e.Run(t.Context(), func(ctx context.Context, _ election.Term) error {
				term = ctx
				if err := e.Run(ctx, until); !errors.Is(err, election.ErrRunning) {
					t.Errorf("a second Run: %v", err)
				}
				return want
			})
			if err != want {
				t.Errorf("Run: %v, want %v", err, want)
			}
			if cause := context.Cause(term); !errors.Is(cause, holdfast.ErrReleased) {
				t.Errorf("the term has ended with %v", cause)
			}
			if _, err := e.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
				t.Errorf("Leader: %v", err)
			}
			if _, leads := e.Leading(); leads {
				t.Error("it leads though Run has returned")
			}
		})
	}
}

// TestResignFromWithin: a function that returns ErrResigned gives up the term and is called again
// for the next.
func TestResignFromWithin(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		terms := 0
		var last int64
		e := election.New(storetest.Client(t, store, "leader"), "office", nil)
		began := time.Now()
		err := e.Run(t.Context(), func(_ context.Context, term election.Term) error {
			terms++
			if term.Token <= last {
				t.Errorf("token %d after %d", term.Token, last)
			}
			last = term.Token
			if terms == 3 {
				return nil
			}
			return fmt.Errorf("enough: %w", election.ErrResigned)
		})
		if err != nil || terms != 3 || time.Since(began) != 2*time.Second {
			t.Errorf("%d terms in %v, %v; want 3 in 2s", terms, time.Since(began), err)
		}
	})
}

// TestPanicReleasesTheLock: and calls of Resign that wait return.
func TestPanicReleasesTheLock(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		e := election.New(storetest.Client(t, store, "leader"), "office", nil)
		resigned := make(chan error, 1)
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = e.Run(t.Context(), func(ctx context.Context, _ election.Term) error {
				go func() { resigned <- e.Resign(context.Background()) }()
				<-ctx.Done()
				panic("boom")
			})
		}()
		if err := <-resigned; err != nil {
			t.Error(err)
		}
		if _, err := e.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
			t.Errorf("Leader: %v", err)
		}
		if err := e.Run(t.Context(), func(context.Context, election.Term) error { return nil }); err != nil {
			t.Errorf("Run after a panic: %v", err)
		}
	})
}

// TestCandidateRidesOutAnOutage: a store that cannot be reached is tried again and again; an error
// that would come again ends Run.
func TestCandidateRidesOutAnOutage(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		down := faultstore.Wrap(store)
		down.Set(faultstore.Acquire, faultstore.Refuse)
		locks := storetest.Client(t, down, "candidate")
		e := election.New(locks, "office", nil)
		ended := make(chan error, 1)
		go func() {
			ended <- e.Run(t.Context(), func(context.Context, election.Term) error { return nil })
		}()
		time.Sleep(time.Hour)
		if len(ended) != 0 {
			t.Fatal(<-ended)
		}
		if calls := down.Calls(faultstore.Acquire); calls > 3000 {
			t.Errorf("%d attempts in an hour", calls)
		}
		down.Set(faultstore.Acquire, nil)
		time.Sleep(5 * time.Second)
		if len(ended) != 1 || <-ended != nil {
			t.Error("it was not elected when the store came back")
		}
		none := election.New(locks, "office", nil).Run(t.Context(), nil)
		if err := election.New(locks, "", nil).Run(t.Context(), until); !errors.Is(err, holdfast.ErrInvalid) || !errors.Is(none, holdfast.ErrInvalid) {
			t.Errorf("an empty name: %v; no function: %v", err, none)
		}
		locks.Close()
		if err := e.Run(t.Context(), until); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("a closed client: %v", err)
		}
	})
}

// TestObserveSeesEachChange, with the vacancy between two terms and a store that cannot be asked.
func TestObserveSeesEachChange(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		asked := faultstore.Wrap(store)
		ctx, cancel := context.WithCancel(t.Context())
		watcher := election.New(storetest.Client(t, asked, "watcher"), "office", nil)
		var seen []string
		var tokens []int64
		ended := make(chan bool)
		go func() {
			defer close(ended)
			for term, err := range watcher.Observe(ctx) {
				if err != nil {
					seen = append(seen, fmt.Sprint("fault: ", errors.Is(err, holdfast.ErrUnavailable)))
					asked.Set(faultstore.Lookup, nil)
					continue
				}
				seen = append(seen, term.Leader)
				tokens = append(tokens, term.Token)
			}
		}()
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b"} {
			e := election.New(storetest.Client(t, store, name), "office", nil)
			_ = e.Run(ctx, func(context.Context, election.Term) error {
				time.Sleep(time.Minute)
				return nil
			})
			time.Sleep(time.Second)
			asked.Set(faultstore.Lookup, faultstore.Refuse)
		}
		cancel()
		<-ended
		if got := fmt.Sprintf("%q", seen); got != `["" "a" "" "fault: true" "b" ""]` {
			t.Errorf("seen: %s", got)
		}
		if tokens[1] >= tokens[3] {
			t.Errorf("tokens %v", tokens)
		}
	})
}
