package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// faultsCases are about what fails around a store.
var faultsCases = []testCase{
	{"restart", restart, "A restart does to holds what the Guarantees state, and what holds by Renew has the name alone. Tokens rise over it.", func(r *caseRun) {
		h, before := r.first.hold("name", long), r.first.hold("released", long)
		before.end()
		time.Sleep(precision) // A restart takes longer than a grant.
		r.backing.Restart(r)
		h.store = r.open()
		h.store.hold("released", long).expectAbove(before)
		switch got := h.store.renew(h.renewRequest(0, long))[0]; {
		case got.State == driver.Held && r.guarantees.Restart != driver.FateFreed:
			h.expect(got, driver.Held)
			h.expectHeld()
		case got.State == driver.Lost && r.guarantees.Restart != driver.FateKept:
			h.store.expectFree("name")
		default:
			r.Errorf("after a restart, by which holds are %v, Renew is answered %v", r.guarantees.Restart, got.State)
		}
	}},
	{"crash", crash, "The holds of a process that has died become free when the Guarantees state, and no sooner.", func(r *caseRun) {
		dying := r.open()
		h := dying.hold("name", r.medium)
		r.backing.Crash(r, dying.Store)
		if r.guarantees.Crash == driver.FateFreed {
			r.first.eventually("name", time.Now())
			return
		}
		r.first.takenFor(r.first.request("name", long), h.sent, r.medium)
	}},
	{"acquire-request-lost", fault, "An Acquire that was lost before it reached the server has no effect, and is not reported as a refusal.", func(r *caseRun) {
		e := &entry{store: r.first, Request: r.first.request("name", long)}
		granted, err := r.withFault(RequestLost, func(ctx context.Context) (bool, error) {
			res, err := r.first.Acquire(ctx, e.Request)
			return res.Granted, err
		})
		switch {
		case granted:
			r.other().expectTaken("name") // The store was certain that it was lost, and sent it again.
		case err == nil:
			r.Error("an Acquire of a free name that was lost on the way is reported as refused")
		default:
			e.expectGone()
			r.other().expectFree("name")
		}
	}},
	{"acquire-reply-lost", fault, "After the reply to an Acquire was lost, a Renew tells its owner that it holds, or waits.", func(r *caseRun) {
		send := func(req driver.Request) *entry {
			known, err := r.withFault(ReplyLost, func(ctx context.Context) (bool, error) {
				res, err := r.first.Acquire(ctx, req)
				return res.Granted || res.Waiting, err
			})
			r.expectUnknown(known, err)
			return &entry{store: r.first, Request: req}
		}
		h := send(r.first.request("name", r.medium))
		r.other().expectTaken("name")
		h.expectHeld()
		if r.features.has(queue) {
			r.first.place("name", long).end() // A store may have prepared for its first place.
			p := send(r.first.placeRequest("name", long))
			p.expectState(driver.Waiting)
			h.end()
			h = p
			h.pollHeld(time.Now())
		}
		h.end()
		r.other().expectFree("name")
	}},
	{"renew-reply-lost", fault, "A Renew without a reply has no answer for its entries, and has prolonged them or not.", func(r *caseRun) {
		h := r.first.hold("name", r.medium)
		answered, err := r.withFault(ReplyLost, func(ctx context.Context) (bool, error) {
			got, err := r.first.Renew(ctx, []driver.RenewRequest{h.renewRequest(h.token, long)})
			if len(got) > 1 || err == nil && len(got) != 1 {
				r.Errorf("Renew of one entry: %v, %v", got, err)
			}
			known := len(got) == 1 && got[0] != driver.Entry{}
			if known {
				h.expect(got[0], driver.Held)
			}
			return known, err
		})
		r.expectUnknown(answered, err)
		h.sleepPast()
		h.expectHeld()
	}},
	{"release-reply-lost", fault, "After the reply to a Release was lost, the name is free, or kept, and the same Release sent again does nothing to a successor.", func(r *caseRun) {
		release := func(h *entry, keep time.Duration) {
			ended, err := r.withFault(ReplyLost, func(ctx context.Context) (bool, error) {
				return r.first.Release(ctx, driver.ReleaseRequest{Name: h.Name, Owner: h.Owner, Keep: keep})
			})
			r.expectUnknown(ended, err)
		}
		h := r.first.hold("name", long)
		release(h, 0)
		successor := r.other().hold("name", long)
		h.expectGone()
		successor.expectHeld()
		if r.features.has(keep) {
			h = r.first.hold("kept", long)
			release(h, long)
			h.keep(long)
			r.other().expectTaken("kept")
		}
	}},
	{"secret", fault, "The error of a call that failed shows no owner.", func(r *caseRun) {
		h := r.first.hold("name", long)
		for what, call := range r.first.calls(h) {
			_, err := r.withFault(RequestLost, func(ctx context.Context) (bool, error) { return false, call(ctx) })
			r.expectNoSecret("the error of "+what, err)
		}
	}},
	{"busy", busy, "A server that cannot serve now, and reports for how long, causes a RetryError: nothing was changed, and a request is granted after that time.", func(r *caseRun) {
		h := r.first.hold("held", long)
		until := time.Now().Add(r.medium)
		r.backing.Busy(r, r.first.Store, r.medium)
		ctx, cancel := r.callContext()
		defer cancel()
		res, err := r.first.Acquire(ctx, r.first.request("name", long))
		var later *driver.RetryError
		if !errors.As(err, &later) || !driver.IsNotApplied(err) || driver.Permanent(err) {
			r.Fatalf("Acquire of a server that cannot serve now: %+v, %v, want a RetryError", res, err)
		}
		if left := time.Until(until); later.After <= 0 || later.After > left+r.tolerance() {
			r.Errorf("After is %v, want it above 0, and about %v", later.After, left)
		}
		time.Sleep(max(later.After, time.Until(until)))
		r.first.eventually("name", time.Now()).end()
		h.expectHeld()
	}},
	{"silence", silence, "A call to a server that has fallen silent returns within a second after its deadline, with an error, and never as refused.", func(r *caseRun) {
		h := r.first.hold("name", long)
		r.first.expectTaken("name")
		calls := r.first.calls(h)
		r.backing.Silence(r, r.first.Store)
		for what, call := range calls {
			const limit = time.Second
			ctx, cancel := context.WithTimeout(r.Context(), limit)
			began := time.Now()
			if err := call(ctx); err == nil {
				r.Errorf("%s succeeds without an answer", what)
			}
			cancel()
			if late := time.Since(began) - limit; late > time.Second+r.tolerance() {
				r.Errorf("%s returned %v after its deadline", what, late)
			}
		}
	}},
	{"severed", sever, "A store works again after its connections were cut: its holds are as they were, and its places get their turns.", func(r *caseRun) {
		own := r.first.hold("own", long)
		h, places := r.other().hold("name", long), []*entry(nil)
		for range 2 {
			if r.features.has(queue) {
				places = append(places, r.first.place("name", long))
			}
		}
		r.backing.Sever(r, r.first.Store)
		var last error
		if !r.poll(time.Now(), func() bool {
			var e *entry
			if e, _, last = r.first.send(r.first.request("name", long)); e != nil {
				last = errors.New("a held name was granted")
			}
			return last == nil
		}) {
			r.Fatalf("after its connections were cut the store does not work: %v", last)
		}
		own.expectHeld()
		h.expectTurns(places...)
	}},
}

// withFault makes a call with a fault, and with a deadline as package holdfast sets it.
func (r *caseRun) withFault(f Fault, call func(context.Context) (bool, error)) (bool, error) {
	r.Helper()
	r.backing.Fault(r, r.first.Store, f)
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	return call(ctx)
}

// expectUnknown checks the answer of a call that took effect, and whose reply was lost: it is known
// in spite of that, or an error leaves it open.
func (r *caseRun) expectUnknown(known bool, err error) {
	r.Helper()
	if !known && (err == nil || driver.IsNotApplied(err)) {
		r.Errorf("a request took effect, and its reply was lost: %v", err)
	}
}
