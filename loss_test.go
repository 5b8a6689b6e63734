package holdfast_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestListStripsThePrefix(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, &holdfast.Config{Prefix: "mine:"}), open(t, store, nil)
		for _, name := range []string{"a/1", "a/2", "b"} {
			acquire(t, c, name, nil)
		}
		acquire(t, other, "a/3", nil)
		var names []string
		for rec, err := range c.List(ctx, "a/") {
			noErr(t, err)
			names = append(names, rec.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"a/1", "a/2"}) {
			t.Errorf("listed %q", names)
		}
	})
}

// A hold that another Client breaks ends at once, and no other does, however it was acquired.
func TestBreakEndsTheHoldAtOnce(t *testing.T) {
	for name, o := range map[string]*holdfast.Options{
		"plain": nil, "NoRenew": {NoRenew: true}, "Detached": {Detached: true}, "Reentrant": {Reentrant: true}, "Shared": shared,
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			lost := 0
			c := open(t, store, &holdfast.Config{
				Prefix: "p/", Hooks: onEvent(holdfast.EventLost, func(holdfast.Event) { lost++ }),
			})
			a, b := acquire(t, c, "a", o), acquire(t, c, "b", o)
			ended := a.Context()
			time.Sleep(time.Second)
			breakLock(t, open(t, store, nil), "p/a")
			noErr(t, within(t, 0, 0, func() error { <-ended.Done(); return nil }))
			for _, err := range []error{context.Cause(ended), a.Err(), a.Extend(ctx, time.Minute), a.Release()} {
				wantErr(t, err, holdfast.ErrLost, holdfast.ErrTaken)
			}
			synctest.Wait()
			if b.Err() != nil || lost != 1 {
				t.Errorf("the other lock: %v; %d losses", b.Err(), lost)
			}
			release(t, b)
		})
	}
}

// A notice makes the Client look, and ends nothing by itself: one of a hold that lasts, of another
// owner, of an entry that is over. A look that fails is made again. A look has the time of any
// request, does not prolong a hold of NoRenew, and none is made after its end.
func TestNoticeOfAHold(t *testing.T) {
	for _, o := range []*holdfast.Options{nil, {NoRenew: true}} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			spy := spyOn(memstore.New())
			store := faultstore.Wrap(spy)
			doubts := 0
			c := closedAtLast(t, store, holdfast.New(store, &holdfast.Config{Hooks: onEvent(holdfast.EventInDoubt, func(holdfast.Event) { doubts++ })}))
			lock := acquire(t, c, "a", o)
			deadline := lock.Deadline()
			store.Set(faultstore.Renew, answersIn(20*ms))
			for _, notice := range []struct {
				owner string
				token int64
			}{{spy.owner, 0}, {spy.owner, lock.Token()}, {spy.owner, lock.Token() + 1}, {"another", 0}, {"another", lock.Token()}, {"", 0}} {
				time.Sleep(25 * ms)
				spy.send("a", notice.owner, notice.token)
				spy.send("b", notice.owner, notice.token)
				synctest.Wait()
				if err := lock.Err(); err != nil || o != nil && lock.Deadline() != deadline || doubts > 0 {
					t.Fatalf("%+v: %v, %d doubts", notice, err, doubts)
				}
			}
			time.Sleep(25 * ms)
			store.Set(faultstore.Renew, faultstore.Refuse)
			breakLock(t, spy.Notifier, "a")
			synctest.Wait()
			if err := lock.Err(); err != nil {
				t.Fatalf("the store has not answered: %v", err)
			}
			store.Set(faultstore.Renew, nil)
			noErr(t, within(t, 0, 2*time.Second, func() error { <-lock.Context().Done(); return nil }))
			wantErr(t, lock.Release(), holdfast.ErrTaken)

			lock = acquire(t, c, "a", o)
			store.Once(faultstore.Release, faultstore.Hang)
			go lock.Release()
			synctest.Wait()
			looks := store.Calls(faultstore.Renew)
			spy.send("a", "", 0)
			synctest.Wait()
			if n := store.Calls(faultstore.Renew) - looks; n > 0 {
				t.Errorf("%d looks at a hold that has ended", n)
			}
		})
	}
}

// A grant that is lost before its caller has it is released: the reply to the renewal that confirms
// it is lost, and the place ends before the next one.
func TestGrantLostBeforeItsConfirmation(t *testing.T) {
	for what, o := range map[string]*holdfast.Options{
		"detached": {TTL: time.Hour, Detached: true}, "no renewal": {TTL: time.Hour, NoRenew: true},
	} {
		virtualRun(t, what, func(t *testing.T, ctx context.Context) {
			b, net := faulty(t, nil)
			a := open(t, net.Store, nil)
			first := acquire(t, a, "n", nil)
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			ended := later(func() error { return b.Do(limited, "n", o, nothing) })
			began := time.Now()
			net.Set(faultstore.Renew, func(ctx context.Context, op faultstore.Op, apply func()) error {
				if time.Since(began) < 6*time.Second {
					return faultstore.LoseReply(ctx, op, apply)
				}
				apply()
				return nil
			})
			release(t, first)
			noErr(t, <-ended)
			free(t, a, "n")
		})
	}
}

// A store that has gone back has of a hold that it has forgotten a place, or another entry: a
// failover has brought back the hold before it. It keeps nothing of it, and Release sends no more.
func TestForgottenHoldIsReleased(t *testing.T) {
	for name, bend := range map[string]func(any){
		"place": forgets, "another token": faultstore.Bent(func(entries *[]driver.Entry) {
			for i := range *entries {
				(*entries)[i].Token++
			}
		}),
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			c, net := faulty(t, nil)
			lock := acquire(t, c, "n", &holdfast.Options{TTL: time.Hour})
			net.Bend(bend)
			time.Sleep(21 * time.Minute)
			free(t, c, "n")
			wantErr(t, lock.Err(), holdfast.ErrTaken)
			wantErr(t, lock.Release(), holdfast.ErrTaken)
			time.Sleep(time.Second)
			if n := net.Calls(faultstore.Release); n != 1 {
				t.Errorf("%d releases", n)
			}
		})
	}
}

// A notice that comes while a renewal is in flight leads to a look after it, at once if that gets
// no answer.
func TestNoticeDuringARenewal(t *testing.T) {
	for name, answer := range map[string]faultstore.Fault{"late": far(4 * time.Second), "none": faultstore.Hang} {
		for _, extend := range []bool{false, true} {
			virtualRun(t, fmt.Sprint(name, " ", extend), func(t *testing.T, ctx context.Context) {
				c, net := faulty(t, nil)
				lock := acquire(t, c, "n", &holdfast.Options{TTL: time.Hour, NoRenew: extend})
				net.Once(faultstore.Renew, answer)
				if extend {
					extended := later(func() error { return lock.Extend(ctx, time.Hour) })
					defer func() { <-extended }()
				} else {
					time.Sleep(20 * time.Minute)
				}
				time.Sleep(2500 * ms) // The request is in flight, and has been carried out.
				breakLock(t, open(t, net.Store, nil), "n")
				noErr(t, within(t, 0, 2*time.Second, func() error { <-lock.Context().Done(); return nil }))
			})
		}
	}
}

// A Break is shown at once though its notice comes right after, or before, that of the grant.
func TestBreakBesideTheGrant(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			mem := memstore.New()
			a, d := open(t, mem, nil), open(t, mem, nil)
			first := acquire(t, a, "a", nil)
			store := faultstore.Wrap(mem)
			b := closedAtLast(t, store, holdfast.New(store, &holdfast.Config{LocalTurn: time.Minute}))
			locks := startWaiters(t, b, "a", nil, 1)
			var mu sync.Mutex
			var notices []func()
			store.Set(faultstore.Notice, func(_ context.Context, _ faultstore.Op, apply func()) error {
				mu.Lock()
				defer mu.Unlock()
				notices = append(notices, apply)
				return nil
			})
			release(t, first)
			synctest.Wait()
			broken := lookup(t, d, "a").Token
			breakLock(t, d, "a")
			synctest.Wait()
			if len(notices) != 2 {
				t.Fatal(len(notices))
			}
			if reversed {
				notices[0], notices[1] = notices[1], notices[0]
			}
			notices[0]()
			notices[1]()
			lock := <-locks
			if lock.Token() == broken { // else it has acquired the name anew
				noErr(t, within(t, 0, 100*ms, func() error { <-lock.Context().Done(); return nil }))
			}
			_ = lock.Release()
		})
	}
}
