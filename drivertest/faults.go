package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var faultsCases = []testCase{
	{
		name:     "restart",
		claim:    "A restart does to holds what the Guarantees state, and an owner with a Renew that returns Renewed still holds the name exclusively.",
		requires: restart,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			r.backing.Restart(r)
			h.client = r.openStore()
			outcome := h.renewFor(long)
			switch fate := r.guarantees.Restart; {
			case outcome == driver.Renewed && fate != driver.FateFreed:
				h.expectStillHeld()
			case outcome == driver.RenewLost && fate != driver.FateKept:
				h.client.expectFree("name")
			default:
				r.Errorf("a restart is said to leave holds %v; Renew after it is answered %d", fate, outcome)
			}
		},
	},
	{
		name:     "restart-usable",
		claim:    "After a restart new locks can be taken and released.",
		requires: restart,
		run: func(r *caseRun) {
			r.backing.Restart(r)
			r.openStore().acquireFree("name", long).releaseHeld()
		},
	},
	{
		name:     "crash",
		claim:    "The locks of a process that has died become free when the Guarantees state, and no sooner.",
		requires: crash,
		run: func(r *caseRun) {
			dying := r.openStore()
			if r.guarantees.HolderCrash == driver.RecoveryAtOnce {
				dying.acquireFree("name", long)
				r.backing.Crash(r, dying.Store)
				r.first.eventuallyGranted("name", time.Now())
				return
			}
			h := dying.acquireFree("name", medium)
			r.backing.Crash(r, dying.Store)
			r.first.heldFor("name", h.sent, medium)
		},
	},
	{
		name:     "crash-of-others",
		claim:    "The death of a process does nothing to the locks of other processes.",
		requires: crash,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			dying := r.openStore()
			dying.acquireFree("other name", long)
			r.backing.Crash(r, dying.Store)
			h.expectStillHeld()
		},
	},
	{
		name:     "acquire-request-lost",
		claim:    "An Acquire that was lost before it reached the server has no effect.",
		requires: fault,
		run: func(r *caseRun) {
			req := r.first.newRequest("name", long)
			res, err := r.callWithFault(RequestLost, func(ctx context.Context) (bool, error) {
				res, err := r.first.Acquire(ctx, req)
				return res.Granted, err
			})
			if res {
				r.otherStore().expectHeld("name") // The store sent it again, and received a reply.
			} else if err == nil {
				r.Error("an Acquire of a free name that was lost on the way is reported as refused")
			} else {
				r.otherStore().expectFree("name")
			}
		},
	},
	{
		name:     "acquire-reply-lost",
		claim:    "After the reply to an Acquire was lost, the same request sent again is granted: its owner is not locked out.",
		requires: fault,
		run: func(r *caseRun) {
			req := r.first.newRequest("name", long)
			granted, err := r.callWithFault(ReplyLost, func(ctx context.Context) (bool, error) {
				res, err := r.first.Acquire(ctx, req)
				return res.Granted, err
			})
			if !granted && driver.IsNotApplied(err) {
				r.Errorf("an Acquire took effect, but its error says that it did not: %v", err)
			}
			r.otherStore().expectHeld("name")
			r.first.acquireGranted(req).expectStillHeld()
		},
	},
	{
		name:     "renew-reply-lost",
		claim:    "After the reply to a Renew was lost, the owner still holds the name, for the renewed time.",
		requires: fault,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			renewed, err := r.callWithFault(ReplyLost, func(ctx context.Context) (bool, error) {
				outcomes, err := r.first.Renew(ctx, []driver.RenewRequest{{Name: "name", Owner: h.owner, TTL: long}})
				if err != nil && len(outcomes) > 0 && outcomes[0] != driver.RenewUnknown {
					return false, fmt.Errorf("the outcome without an answer is %d: %w", outcomes[0], err)
				}
				return err == nil && outcomes[0] == driver.Renewed, err
			})
			if !renewed && driver.IsNotApplied(err) {
				r.Errorf("a Renew took effect, but its error says that it did not: %v", err)
			}
			h.sleepPastExpiry()
			h.expectStillHeld()
		},
	},
	{
		name:     "release-reply-lost",
		claim:    "After the reply to a Release was lost, the name is free, and the same request sent again does nothing to a successor.",
		requires: fault,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			_, err := r.callWithFault(ReplyLost, func(ctx context.Context) (bool, error) {
				return r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner})
			})
			if driver.IsNotApplied(err) {
				r.Errorf("a Release took effect, but its error says that it did not: %v", err)
			}
			successor := r.otherStore().acquireFree("name", long)
			h.expectNotReleased()
			successor.expectStillHeld()
		},
	},
	{
		name:     "release-request-lost",
		claim:    "After a Release was lost before it reached the server, the same request sent again frees the name.",
		requires: fault,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			if _, err := r.callWithFault(RequestLost, func(ctx context.Context) (bool, error) {
				return r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner})
			}); err != nil {
				h.releaseHeld()
			}
			r.otherStore().expectFree("name")
		},
	},
	{
		name:     "keep-reply-lost",
		claim:    "After the reply to a Release with Keep was lost, the same request sent again reports the hold that it ended.",
		requires: fault | keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			_, err := r.callWithFault(ReplyLost, func(ctx context.Context) (bool, error) {
				return r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner, Keep: long})
			})
			if driver.IsNotApplied(err) {
				r.Errorf("a Release took effect, but its error says that it did not: %v", err)
			}
			h.releaseKeep(long)
			r.otherStore().expectHeld("name")
		},
	},
	{
		name:     "secret",
		claim:    "The error of a call that failed shows no owner.",
		requires: fault,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			for what, call := range r.first.claimedCalls("name", h.owner) {
				_, err := r.callWithFault(RequestLost, func(ctx context.Context) (bool, error) { return false, call(ctx) })
				r.expectNoSecret("the error of "+what, err)
			}
		},
	},
	{
		name:     "busy",
		claim:    "A server that cannot serve now, and reports for how long, causes a RetryError: nothing was changed, and the request is granted after that time.",
		requires: busy,
		run: func(r *caseRun) {
			h := r.first.acquireFree("held", long)
			until := time.Now().Add(medium)
			r.backing.Busy(r, r.first.Store, medium)
			req := r.first.newRequest("name", long)
			ctx, cancel := r.callContext()
			defer cancel()
			res, err := r.first.Acquire(ctx, req)
			var later *driver.RetryError
			if !errors.As(err, &later) || !driver.IsNotApplied(err) || driver.Permanent(err) {
				r.Fatalf("Acquire of a server that cannot serve now: %+v, %v, want a RetryError", res, err)
			}
			if left := time.Until(until); later.After <= 0 || later.After > left+r.tolerance() {
				r.Errorf("After is %v, want it above 0, and about %v", later.After, left)
			}
			time.Sleep(max(later.After, time.Until(until)))
			r.first.eventuallyGranted("name", time.Now()).releaseHeld()
			h.expectStillHeld()
		},
	},
	{
		name:     "silence",
		claim:    "A call to a server that has fallen silent returns within a second after its deadline, with an error; a Watch may have succeeded.",
		requires: silence,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			r.backing.Silence(r, r.first.Store)
			for what, call := range r.first.claimedCalls("name", h.owner) {
				r.expectReturnInTime(what, call)
			}
		},
	},
	{
		name:     "silence-is-not-held",
		claim:    "An Acquire without a reply returns an error, never a refusal, also for a name that the store has seen held.",
		requires: silence,
		run: func(r *caseRun) {
			r.otherStore().acquireFree("held", long)
			r.first.expectHeld("held")
			r.backing.Silence(r, r.first.Store)
			for _, name := range []string{"held", "free"} {
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				if res, err := r.first.Acquire(ctx, r.first.newRequest(name, long)); err == nil {
					r.Errorf("Acquire of %q without an answer: %+v, want an error", name, res)
				}
				cancel()
			}
		},
	},
	{
		name:     "silence-watched",
		claim:    "If the store claims Supervised, a watch is signalled soon after the server has fallen silent, and every two seconds while it is.",
		requires: silence | push | supervised,
		run: func(r *caseRun) {
			signals := r.first.startWatch("name")
			r.backing.Silence(r, r.first.Store)
			r.expectSignalWithin(5*time.Second, signals)
			r.expectSignalWithin(2*time.Second, signals)
			r.expectSignalWithin(2*time.Second, signals)
		},
	},
	{
		name:     "watch-severed",
		claim:    "A watch signals after its connection was cut, since it may have missed a release, and is in force again.",
		requires: sever | push,
		run: func(r *caseRun) {
			other := r.otherStore()
			signals := r.first.startWatch("name")
			r.backing.Sever(r, r.first.Store)
			r.expectSignal(signals)
			// The contract does not limit how long the store takes to watch again.
			if !r.pollUntil(time.Now(), func() bool {
				other.acquireFree("name", long).releaseHeld()
				return drainSignals(signals) > 0
			}) {
				r.Error("after its connection was cut a watch is not signalled any more")
			}
		},
	},
	{
		name:     "severed",
		claim:    "A store works again after its connections were cut, and its holds are as they were.",
		requires: sever,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			r.backing.Sever(r, r.first.Store)
			if !r.pollUntil(time.Now(), func() bool {
				ctx, cancel := r.callContext()
				defer cancel()
				res, err := r.first.Acquire(ctx, r.first.newRequest("name", long))
				if res.Granted {
					r.Fatal("a held name was granted after the connections were cut")
				}
				return err == nil
			}) {
				r.Fatal("after its connections were cut the store still returns errors")
			}
			h.expectStillHeld()
		},
	},
}

// callWithFault makes a call with a fault, and with a deadline as package holdfast
// sets it.
func (r *caseRun) callWithFault(f Fault, call func(context.Context) (bool, error)) (bool, error) {
	r.Helper()
	r.backing.Fault(r, r.first.Store, f)
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	return call(ctx)
}

// expectReturnInTime checks that a call without a reply returns an error within a second after its
// deadline. Watch may succeed, on a connection that it has.
func (r *caseRun) expectReturnInTime(what string, call func(context.Context) error) {
	r.Helper()
	const limit = time.Second
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	began := time.Now()
	if err := call(ctx); err == nil && what != "Watch" {
		r.Errorf("%s succeeds without an answer", what)
	}
	if late := time.Since(began) - limit; late > time.Second+r.tolerance() {
		r.Errorf("%s returned %v after its deadline", what, late)
	}
}
