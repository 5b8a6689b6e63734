package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// queueCases are about places in a queue, and the turns of their owners.
var queueCases = []testCase{
	{
		name:     "in-order",
		claim:    "Owners are granted a name in the order in which they came, through each store, one at each Release, and each has a higher token.",
		requires: fair,
		run: func(r *caseRun) {
			last := r.first.acquireFree("name", long)
			stores := []*client{r.first, r.otherStore()}
			var waiters []*waiter
			for i := range 6 {
				waiters = append(waiters, stores[i%2].queueUp("name", long))
			}
			for i, w := range waiters {
				for _, later := range waiters[i:] {
					later.expectWaiting()
				}
				last.releaseHeld()
				w.expectAdmitted()
				r.expectHigherToken(last, w.hold)
				w.expectStillHeld()
				last = w.hold
			}
			last.releaseHeld()
			r.first.expectFree("name")
		},
	},
	{
		name:     "notified-once",
		claim:    "An owner is notified once that its place is admitted, with the tokens of the hold, and few notices go to those that still wait.",
		requires: fair,
		run: func(r *caseRun) {
			const count = 10
			last := r.first.acquireFree("name", long)
			var waiters []*waiter
			for range count {
				waiters = append(waiters, r.first.queueUp("name", long))
			}
			holds := map[string]*hold{}
			for _, w := range waiters {
				last.releaseHeld()
				w.expectAdmitted()
				w.expectClaimed(long)
				last, holds[w.owner] = w.hold, w.hold
			}
			time.Sleep(short)
			asks := 0
			notices, _ := r.first.listen().since(0)
			for _, n := range notices {
				switch h := holds[n.Owner]; {
				case n.Kind == driver.Ask && n.Owner == "":
					asks += count
				case n.Kind == driver.Ask:
					asks++
				case n.Kind != driver.Granted || h == nil || n.Name != "name" || n.Token != h.token || max(n.Tokens, 1) != h.tokens:
					r.Errorf("the notice %+v is none of an owner that was admitted, or a second one", n)
				default:
					delete(holds, n.Owner)
				}
			}
			if asks > 2*count {
				r.Errorf("%d waiters, which were admitted in turn, were sent Ask %d times", count, asks)
			}
		},
	},
	{
		name:     "no-overtaking",
		claim:    "No request takes a name past the places in its queue, whatever happens at the same time.",
		requires: fair,
		run: func(r *caseRun) {
			last := r.first.acquireFree("name", long)
			other := r.otherStore()
			stores := []*client{r.first, other}
			var waiters []*waiter
			for i := range 8 {
				waiters = append(waiters, stores[i%2].queueUp("name", long))
			}
			stop := make(chan struct{})
			overtaken := make(chan error, 1)
			go func() { overtaken <- other.overtake("name", stop) }()
			for _, w := range waiters {
				last.releaseHeld()
				for _, c := range stores {
					c.expectHeld("name")
				}
				w.expectAdmitted()
				last = w.hold
			}
			close(stop)
			if err := <-overtaken; err != nil {
				r.Fatal(err)
			}
			last.releaseHeld()
			r.first.expectFree("name")
		},
	},
	{
		name:     "exclusion",
		claim:    "Owners that wait by notices alone, through several stores, hold a name one at a time, with rising tokens, and each of them is granted it.",
		requires: fair,
		run: func(r *caseRun) {
			stores := []*client{r.first, r.otherStore(), r.otherStore()}
			for _, c := range stores {
				c.listen()
			}
			sections := make([]criticalSection, 3)
			r.runParallel(18, func(i int) error {
				for round := range 5 {
					n := (i + round) % len(sections)
					name := fmt.Sprint("name/", n)
					w, err := stores[i%len(stores)].waitInQueue(name)
					if err != nil {
						return err
					}
					sectionErr := w.client.enterSection(&sections[n], name, w.token)
					err = w.client.releaseOrError(name, w.owner)
					if err = errors.Join(sectionErr, err); err != nil {
						return err
					}
				}
				return nil
			})
		},
	},
	{
		name:     "racing-release",
		claim:    "An owner with a place is admitted and notified, whenever the Release happens while the place is made.",
		requires: fair,
		run: func(r *caseRun) {
			other := r.otherStore()
			r.first.listen()
			for range 100 {
				h := other.acquireFree("name", long)
				released := h.startRelease()
				w, err := r.first.waitInQueue("name")
				if err = errors.Join(err, <-released); err != nil {
					r.Fatal(err)
				}
				w.releaseHeld()
			}
		},
	},
	{
		name:     "first",
		claim:    "First is the answer to the place that has none before it, and to no other. A store that claims Lookup shows it how long the hold lasts.",
		requires: fair,
		run: func(r *caseRun) {
			h, other := r.first.acquireFree("name", long), r.otherStore() // The first place does not last while it connects.
			a, res := r.first.wait(r.first.queueRequest("name", medium))
			b, later := other.wait(r.first.queueRequest("name", long))
			expect := func(what string, res driver.AcquireResult, first bool) {
				r.Helper()
				if !res.Queued || res.First != first {
					r.Errorf("%s: %+v, want it queued, and First %v", what, res, first)
				}
				if left := res.Held.Remaining; first && r.guarantees.Lookup && (left <= 0 || left > long+r.guarantees.Grain) {
					r.Errorf("%s: a hold of %v is in the way for %v", what, long, left)
				}
			}
			expect("the first place", res, true)
			expect("the second place", later, false)
			expect("Claim of the first place", a.claim(long, driver.MinTTL), true)
			expect("Claim of the second place", b.claim(long, driver.MinTTL), false)
			a.sleepPastExpiry()
			expect("Claim of the second place when the first has run out", b.claim(long, long), true)
			c, res := r.first.wait(r.first.queueRequest("name", long))
			expect("a new place", res, false)
			if !b.release() {
				r.Error("Release of a place reports none")
			}
			expect("Claim when the place before was released", c.claim(long, long), true)
			h.releaseHeld()
		},
	},
	{
		name:     "granted-at-once",
		claim:    "A request with Queue for a free name is granted at once, and the hold lasts for the TTL, whatever Queue is.",
		requires: fair,
		run: func(r *caseRun) {
			req := r.first.queueRequest("longer", short)
			h := r.first.acquireGranted(req)
			req = r.first.queueRequest("shorter", long)
			req.TTL = medium
			shorter := r.first.acquireGranted(req)
			r.sleepPast(short)
			h.expectStillHeld()
			r.otherStore().heldFor("shorter", shorter.sent, medium)
		},
	},
	{
		name:     "end-of-a-place",
		claim:    "A hold that a place has become ends when the place would have ended, neither sooner nor later.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			w := r.first.queueUp("name", medium)
			time.Sleep(short)
			h.releaseHeld()
			w.expectAdmitted()
			looked := time.Now()
			if rec := r.otherStore().expectHeld("name"); r.guarantees.Lookup && rec.Remaining > w.answered.Add(medium+precision+r.guarantees.Grain).Sub(looked) {
				r.Errorf("a hold has %v left, and its place would have ended in %v", rec.Remaining, w.answered.Add(medium).Sub(looked))
			}
			r.otherStore().heldFor("name", w.sent, medium)
			w.expectNothingClaimed()
		},
	},
	{
		name:     "expired-places",
		claim:    "A place that has run out is passed over, and its owner has nothing any more.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			a, b := r.first.queueUp("name", short), r.otherStore().queueUp("name", long)
			a.sleepPastExpiry()
			a.expectNothingClaimed()
			c := r.first.queueUp("name", short)
			d := r.first.queueUp("name", long)
			c.sleepPastExpiry()
			h.expectTurns(b, d)
		},
	},
	{
		name:     "expired-hold",
		claim:    "When a hold has run out, the first place is admitted by a Claim of its owner or the Renew of any place, and no newcomer is granted the name.",
		requires: fair,
		run: func(r *caseRun) {
			other := r.otherStore()
			type queue struct {
				hold *hold
				a, b *waiter
			}
			queues := map[string]queue{}
			for _, by := range []string{"Claim", "Renew", "Renew of another place", "Claim after a newcomer"} {
				queues[by] = queue{r.first.acquireFree(by, medium), r.first.queueUp(by, long), other.queueUp(by, long)}
			}
			for by, q := range queues {
				q.hold.sleepPastExpiry()
				switch by {
				case "Claim after a newcomer":
					other.expectHeld(by)
					other.queueUp(by, long)
				case "Renew":
					q.a.expectRenewed(long)
				case "Renew of another place":
					q.b.expectWaiting()
					q.a.expectAdmitted()
				}
				if res := q.a.claim(long, long); !res.Granted {
					r.Fatalf("Claim of the first place by %s: %+v, want it granted", by, res)
				}
				q.b.expectWaiting()
				q.hold.expectLost()
			}
		},
	},
	{
		name:     "repetition",
		claim:    "An owner that has a place and requests it again keeps its turn, has one place, and keeps it for Queue from now.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			req := r.first.queueRequest("name", medium)
			a, _ := r.first.wait(req)
			b := r.otherStore().queueUp("name", long)
			for _, queue := range []time.Duration{long, driver.MinTTL} {
				req.Queue = queue
				r.first.wait(req)
			}
			a.sleepPastExpiry()
			h.expectTurns(a, b)
		},
	},
	{
		name:     "renew",
		claim:    "A Renew without a Token keeps a place for TTL from now, returns RenewQueued, and never shortens it. One with a Token means holds alone.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			a, b, c := r.first.queueUp("name", medium), r.first.queueUp("name", long), r.first.queueUp("name", medium)
			reqs := []driver.RenewRequest{
				{Name: "name", Owner: b.owner, TTL: driver.MinTTL},
				{Name: "name", Owner: h.owner, TTL: long, Token: h.token},
				{Name: "name", Owner: a.owner, TTL: long},
				{Name: "name", Owner: r.newOwner(), TTL: long},
			}
			want := []driver.RenewOutcome{driver.RenewQueued, driver.Renewed, driver.RenewQueued, driver.RenewLost}
			if got := r.first.renewAll(reqs...); !slices.Equal(got, want) {
				r.Errorf("the outcomes are %v, want %v", got, want)
			}
			for _, token := range []int64{1, h.token, h.token + 1} {
				if got := r.first.renewAll(driver.RenewRequest{Name: "name", Owner: c.owner, TTL: long, Token: max(token, 1)})[0]; got != driver.RenewLost {
					r.Errorf("Renew of a place with a Token is answered %d, want RenewLost", got)
				}
			}
			c.expectWaiting()
			c.sleepPastExpiry()
			h.expectTurns(a, b)
			c.expectNothingClaimed()
		},
	},
	{
		name:     "renew-after-admission",
		claim:    "A Renew without a Token of a place that was admitted returns Renewed and prolongs the hold, and a Claim shows its token.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			w := r.otherStore().queueUp("name", medium)
			h.releaseHeld()
			w.expectRenewed(long)
			res := w.claim(driver.MinTTL, driver.MinTTL)
			if !res.Granted {
				r.Fatalf("Claim of a place that was admitted: %+v, want it granted", res)
			}
			w.token, w.tokens = res.Token, max(res.Tokens, 1)
			r.expectHigherToken(h, w.hold)
			w.sleepPastExpiry()
			w.expectStillHeld()
		},
	},
	{
		name:     "release",
		claim:    "A Release ends a place and reports it once, and the turns of the other places stay.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			a, b, c := r.first.queueUp("name", long), r.first.queueUp("name", long), r.otherStore().queueUp("name", long)
			if !b.release() {
				r.Error("Release of a place reports none")
			}
			b.expectNothingClaimed()
			h.expectStillHeld()
			h.expectTurns(a, c)
			a.expectNothingClaimed()
		},
	},
	{
		name:     "keep",
		claim:    "When a keep begins, the first place is sent Ask. The place is admitted when the keep is over, and not before.",
		requires: fair | keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			a, b := r.otherStore().queueUp("name", long), r.first.queueUp("name", long)
			began := h.releaseKeep(medium)
			a.expectAsk()
			if res := a.claim(long, long); !res.Queued || !res.First || r.guarantees.Lookup && (res.Held.Remaining <= 0 || res.Held.Remaining > medium+r.guarantees.Grain) {
				r.Errorf("Claim of the first place in the queue of a kept name: %+v, want First and at most %v remaining", res, medium)
			}
			time.Sleep(time.Until(began.Add(medium - short)))
			for time.Until(began.Add(medium-precision)) > 0 && a.claim(driver.MinTTL, driver.MinTTL).Queued {
				r.first.expectHeld("name")
				time.Sleep(precision)
			}
			if left := time.Until(began.Add(medium - precision)); left > 0 {
				r.Errorf("a place is admitted %v before the end of a keep", left)
			}
			if !r.pollUntil(began.Add(medium), func() bool { return a.claim(long, long).Granted }) {
				r.Fatal("the first place is not admitted after the end of a keep")
			}
			b.expectWaiting()
			a.releaseHeld()
			b.expectAdmitted()
		},
	},
	{
		name:     "break",
		claim:    "Break ends a hold, with or without its token, and no place: the first place is admitted.",
		requires: fair | breaking,
		run: func(r *caseRun) {
			other := r.otherStore()
			h := r.first.acquireFree("name", long)
			a, b := r.first.queueUp("name", long), other.queueUp("name", long)
			rec, found := other.breakHold("name")
			if !found {
				r.Error("Break of a held name reports nothing")
			}
			r.expectRecord("Break", rec, h, true)
			a.expectAdmitted()
			h.expectNothingClaimed()
			r.first.breakToken("name", a.token)
			b.expectAdmitted()
			a.expectNothingClaimed()
			b.expectStillHeld()
			b.releaseHeld()
			r.expectBreakNothing("name", 0)
			r.first.expectFree("name")
		},
	},
	{
		name:     "request",
		claim:    "A place keeps what its request contains, and the hold that it becomes has it: the holder, the metadata and the floor.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			req := r.first.queueRequest("name", long)
			req.Holder = "host/42/é"
			if r.guarantees.Metadata {
				req.Metadata = map[string]string{"job": "42"}
			}
			if r.guarantees.Fencing {
				req.Floor = r.tokenAhead(farAhead)
			}
			w, _ := r.first.wait(req)
			h.releaseHeld()
			w.expectAdmitted()
			if w.token < req.Floor {
				r.Errorf("a place with the floor %d is granted the token %d", req.Floor, w.token)
			}
			if r.guarantees.Lookup {
				rec, _ := r.otherStore().lookupRecord("name")
				r.expectRecord("Lookup", rec, w.hold, false)
			}
		},
	},
	{
		name:     "floor-too-far",
		claim:    "A request with Queue and a floor more than MaxLead above the store's clock holds no other up.",
		requires: fair | fencing,
		run: func(r *caseRun) {
			limit := r.tokenAhead(driver.MaxLead + farAhead)
			h := r.first.acquireFree("name", long)
			req := r.first.queueRequest("name", long)
			req.Floor = limit
			ctx, cancel := r.callContext()
			defer cancel()
			if res, err := r.first.Acquire(ctx, req); res.Granted || err != nil && !errors.Is(err, driver.ErrInvalid) {
				r.Errorf("Acquire of a held name with a floor too far: %+v, %v", res, err)
			}
			w := r.first.queueUp("name", long)
			h.releaseHeld()
			w.expectAdmitted()
			if w.token >= limit {
				r.Errorf("the token %d shows the floor of another owner", w.token)
			}
		},
	},
	{
		name:     "several",
		claim:    "A place is granted at most as many tokens as it requested. A Claim shows them again, and later grants have tokens above them.",
		requires: fair | fencing,
		run: func(r *caseRun) {
			last := r.first.acquireFree("name", long)
			for _, tokens := range []int{driver.MaxTokens, 0, 3} {
				req := r.first.queueRequest("name", long)
				req.Tokens = tokens
				w, _ := r.first.wait(req)
				last.releaseHeld()
				w.expectAdmitted()
				r.expectHigherToken(last, w.hold)
				if w.tokens > max(tokens, 1) {
					r.Errorf("a place that requested %d tokens is granted %d", tokens, w.tokens)
				}
				w.expectClaimed(long)
				last = w.hold
			}
			last.releaseHeld()
			r.expectHigherToken(last, r.first.acquireFree("name", long))
		},
	},
	{
		name:     "waiting",
		claim:    "A record that has the number of owners in the queue has the right one.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			expect := func(want int) {
				r.Helper()
				records := map[string]driver.Record{"a refusal": r.first.expectHeld("name")}
				if r.features.contains(lookup) {
					records["Lookup"], _ = r.otherStore().lookupRecord("name")
				}
				if r.features.contains(list) {
					records["List"] = r.first.listRecords("")["name"]
				}
				for what, rec := range records {
					if rec.Waiting != 0 && rec.Waiting != want {
						r.Errorf("%s shows %d that wait, want %d", what, rec.Waiting, want)
					}
				}
			}
			expect(0)
			a := r.first.queueUp("name", long)
			r.otherStore().queueUp("name", long)
			expect(2)
			r.first.releaseAs("name", a.owner, 0)
			expect(1)
			h.releaseHeld()
			expect(0)
		},
	},
	{
		name:     "crash",
		claim:    "The place of a process that has died holds a name up until the place ends, and no longer.",
		requires: fair | processes | crash,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			dying := r.openStore()
			dead := dying.queueUp("name", medium)
			w := r.first.queueUp("name", long)
			r.backing.Crash(r, dying.Store)
			h.releaseHeld()
			if !r.pollUntil(dead.answered.Add(medium), func() bool { return w.claim(long, long).Granted }) {
				r.Error("the place behind that of a dead process is not admitted")
			}
		},
	},
}

// overtake makes attempts to take a name past its queue until stop is closed.
func (c *client) overtake(name string, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		ctx, cancel := c.run.callContext()
		res, err := c.Acquire(ctx, c.newRequest(name, long))
		cancel()
		if err != nil {
			return fmt.Errorf("an attempt beside the queue of %q: %w", name, err)
		}
		if res.Granted {
			return fmt.Errorf("an attempt is granted %q past the places in its queue", name)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// waitInQueue acquires a name as package holdfast does, but relies on notices alone. It is for any
// goroutine. The store has a log already.
func (c *client) waitInQueue(name string) (*waiter, error) {
	w, res, err := c.waitOrError(c.queueRequest(name, long))
	if err != nil || res.Granted {
		return w, err
	}
	return w, w.waitAdmitted()
}
