package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var tokensCases = []testCase{
	{
		name:     "rise-over-release",
		claim:    "Every grant has a higher token than the grants before it, through each store.",
		requires: fencing,
		run: func(r *caseRun) {
			stores := []*client{r.first, r.otherStore()}
			last := stores[1].acquireFree("name", long)
			last.releaseHeld()
			for i := range 30 {
				next := stores[i%2].acquireFree("name", long)
				r.expectHigherToken(last, next)
				next.releaseHeld()
				last = next
			}
		},
	},
	{
		name:     "rise-over-break",
		claim:    "A grant after a break has a token above all those of the hold that was broken.",
		requires: fencing | breaking,
		run: func(r *caseRun) {
			last := r.first.acquireSeveral("name", long, driver.MaxTokens)
			for tokens := range 3 {
				r.first.breakHold("name")
				next := r.first.acquireSeveral("name", long, tokens)
				r.expectHigherToken(last, next)
				last = next
			}
		},
	},
	{
		name:     "floor-lasts",
		claim:    "After a grant with a floor ahead of the store's clock, tokens go on rising above it, over release and expiry.",
		requires: fencing,
		run: func(r *caseRun) {
			last := r.acquireAbove(r.tokenAhead(farAhead), "name")
			last.releaseHeld()
			next := r.otherStore().acquireFree("name", short)
			r.expectHigherToken(last, next)
			next.sleepPastExpiry()
			r.expectHigherToken(next, r.first.acquireFree("name", long))
		},
	},
	{
		name:     "floor-too-far",
		claim:    "A floor more than MaxLead above the store's clock is refused as invalid, and neither takes the name nor raises its tokens.",
		requires: fencing,
		run: func(r *caseRun) {
			limit := r.tokenAhead(farAhead)
			r.expectFloorsRefused("name") // of a name that was never taken
			last := r.first.acquireFree("name", long)
			last.releaseHeld()
			r.expectFloorsRefused("name") // of a name that was taken
			next := r.otherStore().acquireFree("name", long)
			r.expectHigherToken(last, next)
			if next.token > limit {
				r.Errorf("after floors that were refused the token is %d, want at most %d", next.token, limit)
			}
		},
	},
	{
		name:     "floor-of-a-refusal",
		claim:    "The floor of an attempt that was refused has no effect on later grants.",
		requires: fencing,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			// The slowest nodes of a quorum apply a grant after the reply. No call reports when.
			time.Sleep(short)
			req := r.first.newRequest("name", long)
			req.Floor = h.token + farAhead.Microseconds()
			r.first.acquireRefused(req)
			time.Sleep(short) // They also receive an attempt after the refusal.
			h.releaseHeld()
			if next := r.first.acquireFree("name", long); next.token >= req.Floor {
				r.Errorf("the token %d shows that a refused attempt with the floor %d changed something", next.token, req.Floor)
			}
		},
	},
	{
		name:     "floor-of-a-repetition",
		claim:    "The token is the same in a repetition, also if its floor is higher, however high.",
		requires: fencing,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			for _, floor := range []int64{h.token + farAhead.Microseconds(), driver.MaxToken / 2} {
				req := r.first.newRequest("name", long)
				req.Owner, req.Floor = h.owner, floor
				if again := r.first.acquireGranted(req); again.token != h.token {
					r.Errorf("a repetition with the floor %d is granted the token %d, want %d as before", floor, again.token, h.token)
				}
			}
		},
	},
	{
		name: "several",
		claim: "A grant has at most as many tokens as requested, and a later grant has a token above all of them, " +
			"through each store, over release and expiry.",
		requires: fencing,
		run: func(r *caseRun) {
			stores := []*client{r.first, r.otherStore()}
			last := stores[1].acquireFree("name", long)
			last.releaseHeld()
			for i := range 10 {
				next := stores[i%2].acquireSeveral("name", long, driver.MaxTokens>>i)
				r.expectHigherToken(last, next)
				next.releaseHeld()
				last = next
			}
			next := r.first.acquireSeveral("name", short, driver.MaxTokens)
			next.sleepPastExpiry()
			r.expectHigherToken(next, r.otherStore().acquireSeveral("name", long, 0))
		},
	},
	{
		name:     "several-of-a-repetition",
		claim:    "A repetition has no more tokens than the grant that it repeats, however many it requests.",
		requires: fencing,
		run: func(r *caseRun) {
			for _, tokens := range []int{0, 3, driver.MaxTokens} {
				h := r.first.acquireSeveral("name", long, tokens)
				req := r.first.newRequest("name", long)
				req.Owner, req.Tokens = h.owner, driver.MaxTokens
				again := r.first.acquireGranted(req)
				if again.token != h.token || again.tokens > h.tokens {
					r.Errorf("a repetition has %d tokens from %d, want at most %d from %d", again.tokens, again.token, h.tokens, h.token)
				}
				h.releaseHeld()
				next := r.first.acquireFree("name", long)
				r.expectHigherToken(again, next)
				next.releaseHeld()
			}
		},
	},
	{
		name:     "several-ahead",
		claim:    "A grant whose last token would be further ahead of the store's clock than MaxTokensLead has one token.",
		requires: fencing,
		run: func(r *caseRun) {
			r.acquireAbove(r.tokenAhead(farAhead), "name").releaseHeld()
			if h := r.first.acquireSeveral("name", long, driver.MaxTokens); h.tokens != 1 {
				r.Errorf("%v above the clock %d tokens are granted, want one", farAhead, h.tokens)
			}
		},
	},
	{
		name:     "rise-over-restart",
		claim:    "A grant after a restart has a higher token, whether holds survive it or not.",
		requires: fencing | restart,
		run: func(r *caseRun) {
			first := r.first.acquireFree("name", long)
			first.releaseHeld()
			time.Sleep(precision) // A restart takes longer than a grant.
			r.backing.Restart(r)
			r.expectHigherToken(first, r.openStore().acquireFree("name", long))
		},
	},
}

// farAhead is a lead of a floor that every store must accept.
const farAhead = driver.MaxLead / 2

// tokenAhead returns a token that is above the clock of the store by lead. It uses
// the token of a grant without a floor as the clock.
func (r *caseRun) tokenAhead(lead time.Duration) int64 {
	r.Helper()
	h := r.first.acquireFree("clock", long)
	h.releaseHeld()
	return h.token + lead.Microseconds()
}

// expectFloorsRefused checks that floors too far ahead of the store's clock are
// refused.
func (r *caseRun) expectFloorsRefused(name string) {
	r.Helper()
	for _, floor := range []int64{r.tokenAhead(driver.MaxLead + farAhead), driver.MaxToken - 1, driver.MaxToken} {
		req := r.first.newRequest(name, long)
		req.Floor = floor
		ctx, cancel := r.callContext()
		res, err := r.first.Acquire(ctx, req)
		cancel()
		if !errors.Is(err, driver.ErrInvalid) {
			r.Errorf("the floor %d: %+v, %v, want ErrInvalid", floor, res, err)
		}
		if r.first.releaseAs(name, req.Owner, 0) {
			r.Errorf("the floor %d: the name was taken", floor)
		}
	}
}

// acquireAbove acquires a free name with a floor, which the token must not be below.
func (r *caseRun) acquireAbove(floor int64, name string) *hold {
	r.Helper()
	req := r.first.newRequest(name, long)
	req.Floor = floor
	h := r.first.acquireGranted(req)
	if h.token < floor {
		r.Errorf("above a floor of %d the token %d is granted", floor, h.token)
	}
	return h
}

// acquireSeveral acquires a free name with several tokens.
func (c *client) acquireSeveral(name string, ttl time.Duration, tokens int) *hold {
	c.run.Helper()
	req := c.newRequest(name, ttl)
	req.Tokens = tokens
	h := c.acquireGranted(req)
	if h.tokens > max(tokens, 1) {
		c.run.Errorf("a request for %d tokens is granted %d", tokens, h.tokens)
	}
	return h
}
