package drivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var faultsCases = []testCase{
	{
		name:  "restart",
		claim: "A restart does to holds what the Guarantees say, and whoever is told that his hold is there has the name to himself.",
		needs: restart,
		run: func(r *run) {
			h := r.first.grant("name", long)
			r.backing.Restart(r)
			h.c = r.open()
			outcome := h.renew(long)
			switch fate := r.guarantees.Restart; {
			case outcome == driver.Renewed && fate != driver.FateFreed:
				h.intact()
			case outcome == driver.RenewLost && fate != driver.FateKept:
				h.c.free("name")
			default:
				r.Errorf("a restart is said to leave holds %v; Renew after it is answered %d", fate, outcome)
			}
		},
	},
	{
		name:  "restart-usable",
		claim: "After a restart new locks can be taken and released.",
		needs: restart,
		run: func(r *run) {
			r.backing.Restart(r)
			r.open().grant("name", long).end()
		},
	},
	{
		name:  "crash",
		claim: "The locks of a process that has died become free when the Guarantees say so, and no sooner.",
		needs: crash,
		run: func(r *run) {
			dying := r.open()
			if r.guarantees.HolderCrash == driver.RecoveryAtOnce {
				dying.grant("name", long)
				r.backing.Crash(r, dying.Store)
				r.first.succeed("name", time.Now())
				return
			}
			h := dying.grant("name", medium)
			r.backing.Crash(r, dying.Store)
			r.first.outlast("name", h.sent, medium)
		},
	},
	{
		name:  "crash-of-others",
		claim: "The death of a process does nothing to the locks of others.",
		needs: crash,
		run: func(r *run) {
			h := r.first.grant("name", long)
			dying := r.open()
			dying.grant("other name", long)
			r.backing.Crash(r, dying.Store)
			h.intact()
		},
	},
	{
		name:  "acquire-request-lost",
		claim: "An Acquire that was lost on the way has no effect.",
		needs: fault,
		run: func(r *run) {
			req := r.first.request("name", long)
			res, err := r.faulty(RequestLost, func(ctx context.Context) (bool, error) {
				res, err := r.first.Acquire(ctx, req)
				return res.Granted, err
			})
			if res {
				r.other().busy("name") // The store sent it again, and got an answer.
			} else if err == nil {
				r.Error("an Acquire of a free name that was lost on the way is reported as refused")
			} else {
				r.other().free("name")
			}
		},
	},
	{
		name:  "acquire-reply-lost",
		claim: "After an Acquire whose answer was lost, the same request sent again is granted: nobody locks himself out.",
		needs: fault,
		run: func(r *run) {
			req := r.first.request("name", long)
			granted, err := r.faulty(ReplyLost, func(ctx context.Context) (bool, error) {
				res, err := r.first.Acquire(ctx, req)
				return res.Granted, err
			})
			if !granted && driver.NotApplied(err) {
				r.Errorf("an Acquire took effect, but its error says that it did not: %v", err)
			}
			r.other().busy("name")
			r.first.take(req).intact()
		},
	},
	{
		name:  "renew-reply-lost",
		claim: "After a Renew whose answer was lost, the hold is still its owner's, and lasts as it was renewed.",
		needs: fault,
		run: func(r *run) {
			h := r.first.grant("name", medium)
			renewed, err := r.faulty(ReplyLost, func(ctx context.Context) (bool, error) {
				outcomes, err := r.first.Renew(ctx, []driver.RenewRequest{{Name: "name", Owner: h.owner, TTL: long}})
				if err != nil && len(outcomes) > 0 && outcomes[0] != driver.RenewUnknown {
					return false, fmt.Errorf("the outcome without an answer is %d: %w", outcomes[0], err)
				}
				return err == nil && outcomes[0] == driver.Renewed, err
			})
			if !renewed && driver.NotApplied(err) {
				r.Errorf("a Renew took effect, but its error says that it did not: %v", err)
			}
			h.runOut()
			h.intact()
		},
	},
	{
		name:  "release-reply-lost",
		claim: "After a Release whose answer was lost the name is free, and the same request sent again does nothing to a successor.",
		needs: fault,
		run: func(r *run) {
			h := r.first.grant("name", long)
			_, err := r.faulty(ReplyLost, func(ctx context.Context) (bool, error) {
				return r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner})
			})
			if driver.NotApplied(err) {
				r.Errorf("a Release took effect, but its error says that it did not: %v", err)
			}
			successor := r.other().grant("name", long)
			h.notReleased()
			successor.intact()
		},
	},
	{
		name:  "release-request-lost",
		claim: "After a Release that was lost on the way the same request sent again frees the name.",
		needs: fault,
		run: func(r *run) {
			h := r.first.grant("name", long)
			if _, err := r.faulty(RequestLost, func(ctx context.Context) (bool, error) {
				return r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner})
			}); err != nil {
				h.end()
			}
			r.other().free("name")
		},
	},
	{
		name:  "keep-reply-lost",
		claim: "After a Release with Keep whose answer was lost, the same request sent again reports the hold that it ended.",
		needs: fault | keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			_, err := r.faulty(ReplyLost, func(ctx context.Context) (bool, error) {
				return r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner, Keep: long})
			})
			if driver.NotApplied(err) {
				r.Errorf("a Release took effect, but its error says that it did not: %v", err)
			}
			h.keep(long)
			r.other().busy("name")
		},
	},
	{
		name:  "secret",
		claim: "The error of a call that went wrong shows no owner.",
		needs: fault,
		run: func(r *run) {
			h := r.first.grant("name", long)
			for what, call := range r.first.calls("name", h.owner) {
				_, err := r.faulty(RequestLost, func(ctx context.Context) (bool, error) { return false, call(ctx) })
				r.hides("the error of "+what, err)
			}
		},
	},
	{
		name:  "silence",
		claim: "If Guarantees().Blocking says so, a call to a server that has fallen silent returns at its deadline.",
		needs: silence | bounded,
		run: func(r *run) {
			h := r.first.grant("name", long)
			r.backing.Silence(r, r.first.Store)
			for what, call := range r.first.calls("name", h.owner) {
				if what != "List" && what != "Watch" {
					r.returnsInTime(what, call)
				}
			}
		},
	},
	{
		name:  "silence-cancelled",
		claim: "If Guarantees().Blocking says so, an Acquire that waits for a silent server returns when it is cancelled.",
		needs: silence | prompt,
		run: func(r *run) {
			r.backing.Silence(r, r.first.Store)
			ctx, cancel := r.bound()
			defer cancel()
			time.AfterFunc(short, cancel)
			began := time.Now()
			if _, err := r.first.Acquire(ctx, r.first.request("name", long)); err == nil {
				r.Error("an Acquire succeeds without an answer")
			}
			if late := time.Since(began) - short; late > r.slack() {
				r.Errorf("an Acquire returned %v after it was cancelled", late)
			}
		},
	},
	{
		name:  "silence-watched",
		claim: "If the store claims Supervised, a watch is signalled soon after the server has fallen silent, and every two seconds while it is.",
		needs: silence | push | supervised,
		run: func(r *run) {
			signals := r.first.watch("name")
			r.backing.Silence(r, r.first.Store)
			r.signalledWithin(5*time.Second, signals)
			r.signalledWithin(2*time.Second, signals)
			r.signalledWithin(2*time.Second, signals)
		},
	},
	{
		name:  "watch-severed",
		claim: "A watch whose connection was cut signals, since it may have missed a release, and is in force again.",
		needs: sever | push,
		run: func(r *run) {
			other := r.other()
			signals := r.first.watch("name")
			r.backing.Sever(r, r.first.Store)
			r.signalled(signals)
			// How long the store takes to watch again is not laid down.
			if !r.poll(time.Now(), func() bool {
				other.grant("name", long).end()
				return drain(signals) > 0
			}) {
				r.Error("after its connection was cut a watch is not signalled any more")
			}
		},
	},
	{
		name:  "severed",
		claim: "A store whose connections were cut does its work again, and its holds are as they were.",
		needs: sever,
		run: func(r *run) {
			h := r.first.grant("name", long)
			r.backing.Sever(r, r.first.Store)
			if !r.poll(time.Now(), func() bool {
				ctx, cancel := r.bound()
				defer cancel()
				res, err := r.first.Acquire(ctx, r.first.request("name", long))
				if res.Granted {
					r.Fatal("a held name was granted after the connections were cut")
				}
				return err == nil
			}) {
				r.Fatal("after its connections were cut the store still returns errors")
			}
			h.intact()
		},
	},
}

// faulty makes a call that goes wrong, with a bound as package holdfast sets it.
func (r *run) faulty(f Fault, call func(context.Context) (bool, error)) (bool, error) {
	r.Helper()
	r.backing.Fault(r, r.first.Store, f)
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	return call(ctx)
}

// returnsInTime makes a call that gets no answer.
func (r *run) returnsInTime(what string, call func(context.Context) error) {
	r.Helper()
	const limit = time.Second
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	began := time.Now()
	if err := call(ctx); err == nil {
		r.Errorf("%s succeeds without an answer", what)
	}
	if late := time.Since(began) - limit; late > time.Second+r.slack() {
		r.Errorf("%s returned %v after its deadline", what, late)
	}
}
