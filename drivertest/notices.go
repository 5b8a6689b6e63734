package drivertest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// noticesCases are about the owners that wait in a store that is not Fair, which are sent Ask
// notices.
var noticesCases = []testCase{
	{
		name:     "release",
		claim:    "A waiter without a place is sent Ask after a Release of its name.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			h.releaseHeld()
			w.expectAsk()
		},
	},
	{
		name:     "break",
		claim:    "A waiter without a place is sent Ask after a Break of its name.",
		requires: notifying | breaking,
		without:  fair,
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			r.first.breakHold("name")
			w.expectAsk()
		},
	},
	{
		name:     "keep",
		claim:    "A waiter without a place is sent Ask when a name is kept.",
		requires: notifying | keep,
		without:  fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			h.releaseKeep(long)
			w.expectAsk()
		},
	},
	{
		name:     "other-process",
		claim:    "A waiter without a place is sent Ask after a Release or Break through another store.",
		requires: notifying | processes,
		without:  fair,
		run: func(r *caseRun) {
			other := r.otherStore()
			h := other.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			h.releaseHeld()
			w.expectAsk()
			if r.features.contains(breaking) {
				other.acquireFree("name", long)
				w := r.first.waitForAsk("name", long)
				other.breakHold("name")
				w.expectAsk()
			}
		},
	},
	{
		name:     "first-grant",
		claim:    "Of two owners that request a name that was never taken at the same time, one waits, and is sent Ask after the Release of the other.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			stores := []*client{r.first, r.otherStore()}
			for _, c := range stores {
				c.listen()
			}
			for i := range 20 {
				name := fmt.Sprint("name/", i)
				waiters, granted := make([]*waiter, 2), make([]bool, 2)
				r.runParallel(2, func(i int) error {
					w, res, err := stores[i].waitOrError(stores[i].queueRequest(name, long))
					waiters[i], granted[i] = w, res.Granted
					return err
				})
				if granted[0] == granted[1] {
					r.Fatalf("two owners were granted %q: %v, want one of them", name, granted)
				}
				holds, waits := waiters[0], waiters[1]
				if granted[1] {
					holds, waits = waits, holds
				}
				holds.releaseHeld()
				waits.expectAsk()
			}
		},
	},
	{
		name:     "every-waiter",
		claim:    "Every waiter without a place is sent Ask, through each store.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			other := r.otherStore()
			waiters := []*waiter{r.first.waitForAsk("name", long), r.first.waitForAsk("name", long), other.waitForAsk("name", long)}
			h.releaseHeld()
			for _, w := range waiters {
				w.expectAsk()
			}
		},
	},
	{
		name:     "none-lost",
		claim:    "A Release that happens after a request was queued is followed by an Ask, in every one of many rounds.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			other := r.otherStore()
			for i := range 50 {
				name := fmt.Sprint("name/", i%3)
				h := other.acquireFree(name, long)
				w := r.first.waitForAsk(name, long)
				r.first.expectHeld(name)
				h.releaseHeld()
				w.expectAsk()
				w.release()
			}
		},
	},
	{
		name:     "racing-release",
		claim:    "A waiter that requests a name, and again after each Ask, acquires it, whenever the Release happens in between.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			other := r.otherStore()
			r.first.listen()
			for range 50 {
				h := other.acquireFree("name", long)
				released := h.startRelease()
				r.waitByAsks("name").releaseHeld()
				if err := <-released; err != nil {
					r.Fatal(err)
				}
			}
		},
	},
	{
		name:     "again",
		claim:    "A waiter without a place is sent Ask repeatedly, not only once.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			for range 5 {
				w.skipNotices()
				h.releaseHeld()
				w.expectAsk()
				h = r.first.acquireFree("name", long)
			}
		},
	},
	{
		name:     "prolonged",
		claim:    "A waiter that requests the name again is sent Ask until Queue after that.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			req := r.first.queueRequest("name", medium)
			w, _ := r.first.wait(req)
			for _, queue := range []time.Duration{long, driver.MinTTL} {
				req.Queue = queue
				r.first.wait(req)
			}
			w.sleepPastExpiry()
			w.skipNotices()
			h.releaseHeld()
			w.expectAsk()
		},
	},
	{
		name:     "ends",
		claim:    "A waiter without a place is sent Ask for as long as Queue, and not for ever.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			w := r.first.waitForAsk("name", medium)
			w.sleepPastExpiry()
			if !r.pollUntil(w.answered.Add(medium), func() bool {
				w.skipNotices()
				h.releaseHeld()
				h = r.first.acquireFree("name", long)
				time.Sleep(short)
				return !w.asked()
			}) {
				r.Error("a waiter whose time is over is still sent Ask")
			}
		},
	},
	{
		name:     "given-up",
		claim:    "A Release by a waiter without a place reports false, and other waiters are sent Ask as before.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			stays, ends := r.first.waitForAsk("name", long), r.first.waitForAsk("name", long)
			ends.expectNotReleased()
			h.expectStillHeld()
			stays.skipNotices()
			h.releaseHeld()
			stays.expectAsk()
			h = r.first.acquireFree("name", long)
			again := r.first.waitForAsk("name", long)
			h.releaseHeld()
			again.expectAsk()
		},
	},
	{
		name:     "many",
		claim:    "There can be waiters for many names at once, and each is sent Ask for its own name.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			waiters := map[*hold]*waiter{}
			for i := range 100 {
				h := r.first.acquireFree(fmt.Sprint("name/", i), long)
				waiters[h] = r.first.waitForAsk(h.name, long)
			}
			for h := range waiters {
				h.releaseHeld()
			}
			for _, w := range waiters {
				w.expectAsk()
			}
		},
	},
	{
		name:     "other-names",
		claim:    "What happens to other names does not keep sending notices to a waiter.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			for i := range 100 {
				r.first.acquireFree(fmt.Sprint("name", i%7), long).releaseHeld()
			}
			time.Sleep(short)
			asked := 0
			for w.asked() {
				asked++
			}
			if asked > 10 {
				r.Errorf("a waiter was sent Ask %d times by 100 releases of other names", asked)
			}
		},
	},
	{
		name:     "every-listener",
		claim:    "Every function that is registered is called for each notice, until it is stopped, and not after.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			r.first.listen()
			second, stop := r.first.startNotify()
			third, stopThird := r.first.startNotify()
			defer stopThird()
			h := r.first.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			others := []*waiter{{hold: w.hold, log: second}, {hold: w.hold, log: third}}
			h.releaseHeld()
			w.expectAsk()
			for _, w := range others {
				w.expectAsk()
			}
			h = r.first.acquireFree("name", long)
			stop()
			stopped := second.count()
			w.skipNotices()
			others[1].skipNotices()
			h.releaseHeld()
			w.expectAsk()
			others[1].expectAsk()
			time.Sleep(short)
			if late := second.count() - stopped; late != 0 {
				r.Errorf("a function that was stopped is called %d times", late)
			}
		},
	},
	{
		name:     "lost",
		claim:    "A Lost notice is true: it comes once for a hold that was broken, if at all, and not after a Release or the end of the TTL.",
		requires: notifying,
		run: func(r *caseRun) {
			log := r.first.listen()
			lost := map[string]int{}
			allowed := map[string]bool{}
			r.first.acquireFree("released", long).releaseHeld()
			r.first.expiredHold("expired")
			r.first.acquireFree("held", long)
			if r.features.contains(keep) {
				r.first.acquireFree("kept", long).releaseKeep(short)
			}
			if r.features.contains(breaking) {
				h := r.first.acquireFree("broken", long)
				r.otherStore().breakHold("broken")
				h.expectLost()
				allowed["broken"] = true
			}
			time.Sleep(2 * short)
			notices, _ := log.since(0)
			for _, n := range notices {
				if n.Kind != driver.Lost {
					continue
				}
				if lost[n.Name]++; !allowed[n.Name] || lost[n.Name] > 1 {
					r.Errorf("Lost is sent %d times for %q, of which no hold was lost, or one", lost[n.Name], n.Name)
				}
			}
		},
	},
}

// skipNotices drops the notices that have come.
func (w *waiter) skipNotices() { w.seen = w.log.count() }

// waitByAsks acquires a name as package holdfast does of a store that is not Fair, but relies on
// Ask notices alone.
func (r *caseRun) waitByAsks(name string) *hold {
	r.Helper()
	req := r.first.queueRequest(name, long)
	for {
		w, res, err := r.first.waitOrError(req)
		if err != nil {
			r.Fatal(err)
		}
		if res.Granted {
			return w.hold
		}
		w.expectAsk()
	}
}
