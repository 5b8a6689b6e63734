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
		name:     "queue-reply-lost",
		claim:    "After the reply to a request with Queue was lost, a Claim finds the place or the hold that it made, or that it made none.",
		requires: fault | fair,
		run: func(r *caseRun) {
			for _, held := range []bool{false, true} {
				name := fmt.Sprint("held ", held)
				var h *hold
				if held {
					h = r.otherStore().acquireFree(name, long)
					r.first.queueUp(name, long).release() // A store may have prepared for its first place.
				}
				req := r.first.queueRequest(name, long)
				answered, err := r.callWithFault(ReplyLost, func(ctx context.Context) (bool, error) {
					res, err := r.first.Acquire(ctx, req)
					return err == nil && res.Granted != held && res.Queued == held, err
				})
				if !answered && (err == nil || driver.IsNotApplied(err)) {
					r.Errorf("an Acquire with Queue took effect, and its reply was lost: %v", err)
				}
				w := &waiter{hold: &hold{client: r.first, name: name, owner: req.Owner, holder: req.Holder}}
				res := w.claim(long, long)
				if res.Granted == held || res.Queued && !held {
					r.Errorf("Claim after the reply was lost: %+v, and the name was held: %v", res, held)
				}
				if held {
					h.releaseHeld()
				}
				switch {
				case held && res.Queued:
					w.expectStillHeld()
				case held: // The reply that was lost was an earlier one of several.
					r.otherStore().acquireFree(name, long)
				}
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
		claim:    "A call to a server that has fallen silent returns within a second after its deadline, with an error.",
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
		name:     "notices-severed",
		claim:    "A waiter of a store whose connections were cut is notified of a Release that happens meanwhile, and of those after it.",
		requires: sever | notifying,
		without:  fair,
		run: func(r *caseRun) {
			other := r.otherStore()
			h := other.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			r.backing.Sever(r, r.first.Store)
			h.releaseHeld()
			w.expectAsk()
			// The contract does not limit how long the store takes to be notified again.
			if !r.pollUntil(time.Now(), func() bool {
				w.skipNotices()
				other.acquireFree("name", long).releaseHeld()
				_, ok := w.nextNotice(time.After(short))
				return ok
			}) {
				r.Error("after its connection was cut a waiter is not sent Ask any more")
			}
		},
	},
	{
		name:     "place-severed",
		claim:    "A place of a store whose connections were cut is admitted, and the store is notified of it.",
		requires: sever | fair,
		run: func(r *caseRun) {
			h := r.otherStore().acquireFree("name", long)
			a, b := r.first.queueUp("name", long), r.first.queueUp("name", long)
			r.backing.Sever(r, r.first.Store)
			r.pollUntil(time.Now(), func() bool {
				ctx, cancel := r.callContext()
				defer cancel()
				_, err := r.first.Acquire(ctx, r.first.newRequest("name", long))
				return err == nil
			})
			h.releaseHeld()
			for _, w := range []*waiter{a, b} {
				if _, ok := w.nextNotice(time.After(r.tolerance())); !ok {
					r.Error("after its connection was cut a store is not notified of its places any more")
				}
				// Other connections may not work yet.
				if !r.pollUntil(time.Now(), func() bool {
					ctx, cancel := r.callContext()
					defer cancel()
					res, err := r.first.Acquire(ctx, w.claimRequest(long, long))
					return err == nil && res.Granted
				}) {
					r.Fatal("after its connections were cut the place of a store is not admitted")
				}
				b.skipNotices()
				r.first.releaseAs("name", w.owner, 0)
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
// deadline.
func (r *caseRun) expectReturnInTime(what string, call func(context.Context) error) {
	r.Helper()
	const limit = time.Second
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	began := time.Now()
	if err := call(ctx); err == nil {
		r.Errorf("%s succeeds without an answer", what)
	}
	if late := time.Since(began) - limit; late > time.Second+r.tolerance() {
		r.Errorf("%s returned %v after its deadline", what, late)
	}
}
