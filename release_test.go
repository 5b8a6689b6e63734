package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A release of unknown outcome is tried again until the store has understood, within the request
// timeout, whatever the pauses between attempts.
func TestReleaseIsTriedAgain(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"refused": faultstore.Refuse, "reply lost": faultstore.LoseReply, "hung": faultstore.Hang,
	} {
		for _, backoff := range []holdfast.Backoff{{}, {Min: time.Minute, Max: time.Minute}} {
			virtualRun(t, name+" "+backoff.Min.String(), func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, &holdfast.Config{Backoff: backoff})
				lock := acquire(t, c, "a", nil)
				store.Once(faultstore.Release, fault)
				if err := within(t, 0, 6*time.Second, lock.Release); name != "hung" {
					noErr(t, err)
				}
				time.Sleep(backoff.Min + time.Second)
				free(t, c, "a")
			})
		}
	}
}

// A release goes on in the background for as long as the store may keep the hold, by the steps of
// its clock, with pauses of all lengths: after an extension, after an adoption with a shorter TTL
// of a hold that was extended.
func TestBackgroundReleaseLastsAsLongAsTheHold(t *testing.T) {
	for name, test := range map[string]struct {
		outage, ttl, grain, pause time.Duration
		extend                    faultstore.Fault // of an Extend by an hour, if there is one
		adopted                   bool
	}{
		"plain":                         {outage: 20 * time.Second},
		"long pauses":                   {outage: 20 * time.Minute, ttl: time.Hour, pause: 20 * time.Second},
		"through the grain":             {outage: 30 * time.Second, ttl: 10 * time.Second, grain: time.Minute},
		"extended":                      {outage: 50 * time.Second, extend: answersLate(0)},
		"extended, reply lost":          {outage: 50 * time.Second, extend: faultstore.LoseReply},
		"extended, adopted":             {outage: 50 * time.Second, extend: answersLate(0), adopted: true},
		"extended, reply lost, adopted": {outage: 50 * time.Second, extend: faultstore.LoseReply, adopted: true},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.NewCoarse(test.grain))
			c := open(t, store, &holdfast.Config{Backoff: holdfast.Backoff{Min: test.pause}})
			lock := acquire(t, c, "a", &holdfast.Options{TTL: test.ttl, Detached: true})
			time.Sleep(21 * time.Second)
			if test.extend != nil {
				store.Once(faultstore.Renew, test.extend)
				_ = lock.Extend(ctx, time.Hour)
			}
			if test.adopted {
				lock = adopt(t, c, handOver(t, lock), &holdfast.Options{TTL: time.Second})
			}
			store.Set(faultstore.Release, faultstore.Refuse)
			wantErr(t, lock.Release(), holdfast.ErrUnavailable)
			wantErr(t, lock.Err(), holdfast.ErrReleased)
			time.Sleep(test.outage)
			store.Set(faultstore.Release, nil)
			time.Sleep(time.Second + test.pause)
			free(t, c, "a")
		})
	}
}

// Release and HandOver wait for a renewal that is under way. When Release has returned, nothing is
// written any more; no renewal prolongs a hold beyond what its adopter knows.
func TestReleaseWaitsForTheRenewalUnderWay(t *testing.T) {
	for what, end := range map[string]func(*holdfast.Lock) error{
		"Release": (*holdfast.Lock).Release, "HandOver": func(l *holdfast.Lock) error { return failure(l.HandOver()) },
	} {
		virtualRun(t, what, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			lock := acquire(t, c, "a", &holdfast.Options{Detached: true})
			store.Once(faultstore.Renew, far(2*time.Second))
			time.Sleep(10*time.Second + ms) // The renewal is under way.
			noErr(t, within(t, 2*time.Second-ms, 2*time.Second, func() error { return end(lock) }))
			time.Sleep(time.Minute)
			free(t, c, "a")
			if n := store.Calls(faultstore.Renew); n != 1 {
				t.Errorf("%d renewals", n)
			}
		})
	}
}

// Do reports that its lock was broken and taken by another though the first request of its release
// was certainly not carried out; Release alike.
func TestRefusedReleaseOfALostLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := open(t, store.Store, nil)
		store.Set(faultstore.Notice, loseNotice)
		wantErr(t, c.Do(ctx, "a", nil, func(context.Context) error {
			breakLock(t, other, "a")
			release(t, acquire(t, other, "a", nil))
			store.Once(faultstore.Release, faultstore.Refuse)
			return nil
		}), holdfast.ErrLost)
	})
}

// The name stays taken for the given time, counted from the call, also if the answer is lost, and
// also if the time is over when it comes.
func TestReleaseKeep(t *testing.T) {
	for name, test := range map[string]struct {
		fault faultstore.Fault
		keep  time.Duration
	}{
		"plain":      {nil, 5 * time.Second},
		"lost reply": {faultstore.LoseReply, 5 * time.Second},
		"over": {func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			time.Sleep(time.Second)
			return faultstore.ErrReplyLost
		}, time.Second / 2},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			lock := acquire(t, open(t, store, nil), "name", nil)
			time.Sleep(2 * time.Second)
			if test.fault != nil {
				store.Once(faultstore.Release, test.fault)
			}
			other := open(t, store.Store, nil)
			noErr(t, within(t, test.keep, test.keep+time.Second, func() error {
				noErr(t, lock.ReleaseKeep(test.keep))
				if err := lock.Err(); err != holdfast.ErrReleased {
					t.Errorf("Err: %v", err)
				}
				return failure(other.Acquire(ctx, "name", nil))
			}))
		})
	}
}

// The name is kept also after MaxHold has ended the hold.
func TestKeepOutlastsMaxHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		lock := acquire(t, c, "a", &holdfast.Options{MaxHold: time.Minute})
		<-lock.Context().Done()
		wantErr(t, lock.ReleaseKeep(time.Hour), holdfast.ErrMaxHold)
		time.Sleep(time.Hour - time.Second)
		wantErr(t, failure(c.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		time.Sleep(2 * time.Second)
		free(t, c, "a")
	})
}

// ReleaseKeep refuses what it cannot keep, and never says that a name is kept which is free.
func TestReleaseKeepRefuses(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		o := &holdfast.Options{Reentrant: true}
		lock := acquire(t, c, "name", o)
		for _, d := range []time.Duration{-1, 0, driver.MinTTL - 1, driver.MaxTTL + 1} {
			wantErr(t, lock.ReleaseKeep(d), holdfast.ErrInvalid)
		}
		second := acquire(t, c, "name", o)
		wantErr(t, lock.ReleaseKeep(time.Minute), holdfast.ErrInvalid)
		release(t, second)
		noErr(t, lock.Err()) // A refusal has not ended it.
		noErr(t, c.ReleaseAll())
		if err := lock.ReleaseKeep(time.Minute); !errors.Is(err, holdfast.ErrReleased) || !strings.Contains(err.Error(), `release "name"`) {
			t.Errorf("after ReleaseAll: %v", err)
		}
		lock, err := c.TryAcquire(ctx, "name", nil)
		if err != nil {
			t.Fatalf("the name is kept though an error said that it is not: %v", err)
		}
		breakLock(t, c, "name")
		wantErr(t, lock.ReleaseKeep(time.Minute), holdfast.ErrLost)
	})
}

// A keep is not confirmed if the hold has ended before a release was applied: the first request is
// lost, and the lease ends before the second, which may come after the time of the keep.
func TestKeepAfterTheEnd(t *testing.T) {
	for _, keep := range []time.Duration{2500 * ms, time.Hour} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			lock := acquire(t, c, "name", nil)
			store.Set(faultstore.Renew, faultstore.Hang)
			time.Sleep(28 * time.Second)
			store.Once(faultstore.Release, faultstore.Hang)
			wantErr(t, lock.ReleaseKeep(keep), holdfast.ErrLost, holdfast.ErrTaken)
			release(t, acquire(t, open(t, store.Store, nil), "name", nil))
		})
	}
}

// A hold that a notice has told before the answer to its Acquire, or to a renewal of its place, is
// not one of the caller yet: ReleaseAll leaves it alone, and if it ends meanwhile the caller gets
// another one.
func TestHoldBeforeTheAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		op     faultstore.Op
		answer faultstore.Fault
	}{
		"late":         {faultstore.Acquire, far(1800 * ms)},
		"too late":     {faultstore.Acquire, applyAndHang},
		"of a renewal": {faultstore.Renew, answersLate(900 * ms)},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			b, net := faulty(t, nil)
			a := open(t, net.Store, nil)
			first := acquire(t, a, "n", nil)
			net.Once(test.op, test.answer)
			got := make(chan *holdfast.Lock, 1)
			go func() { got <- acquire(t, b, "n", &holdfast.Options{TTL: 2 * time.Second}) }()
			time.Sleep(time.Second)
			release(t, first)
			told := lookup(t, a, "n").Token
			noErr(t, b.ReleaseAll())
			lock := <-got
			if same := lock.Token() == told; same != (name != "too late") {
				t.Errorf("token %d, and that of the notice is %d", lock.Token(), told)
			}
			time.Sleep(time.Minute)
			noErr(t, lock.Err())
			release(t, lock)
			free(t, a, "n")
		})
	}
}
