package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// noticesCases are about the owners that wait in a store that is not Fair, which are sent Ask
// notices.
var noticesCases = []testCase{
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
		claim:    "Every waiter without a place is sent Ask after a Release or Break, through each store.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			other := r.otherStore()
			h := other.acquireFree("name", long)
			waiters := []*waiter{r.first.waitForAsk("name", long), r.first.waitForAsk("name", long), other.waitForAsk("name", long)}
			h.releaseHeld()
			for _, w := range waiters {
				w.expectAsk()
			}
			if r.features.contains(breaking) {
				other.acquireFree("name", long)
				w := r.first.waitForAsk("name", long)
				other.breakHold("name")
				w.expectAsk()
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
		name:     "every-listener",
		claim:    "Every function that is registered is called for each notice, until it is stopped, and not after.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			r.first.listen()
			second, stop := r.first.startNotify()
			h := r.first.acquireFree("name", long)
			w := r.first.waitForAsk("name", long)
			h.releaseHeld()
			w.expectAsk()
			(&waiter{hold: w.hold, log: second}).expectAsk()
			h = r.first.acquireFree("name", long)
			stop()
			stopped := second.count()
			w.skipNotices()
			h.releaseHeld()
			w.expectAsk()
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
