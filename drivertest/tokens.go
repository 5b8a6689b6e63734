package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var tokensCases = []testCase{
	{
		name:  "none",
		claim: "A store that does not claim Fencing grants the token 0.",
		lacks: fencing,
		run: func(r *run) {
			req := r.first.request("name", long)
			req.Floor = 7
			if token := r.first.take(req).token; token != 0 {
				r.Errorf("a store without fencing grants the token %d", token)
			}
		},
	},
	{
		name:  "range",
		claim: "A token is positive and at most MaxToken.",
		needs: fencing,
		run: func(r *run) {
			if token := r.first.grant("name", long).token; token <= 0 || token > driver.MaxToken {
				r.Errorf("the token of a grant is %d", token)
			}
		},
	},
	{
		name:  "rise-over-release",
		claim: "Every grant has a higher token than the ones before it, through whichever store.",
		needs: fencing,
		run: func(r *run) {
			stores := []*client{r.first, r.other()}
			last := stores[1].grant("name", long)
			last.end()
			for i := range 30 {
				next := stores[i%2].grant("name", long)
				r.higher(last, next)
				next.end()
				last = next
			}
		},
	},
	{
		name:  "rise-over-expiry",
		claim: "A grant after a hold has run out has a higher token.",
		needs: fencing,
		run: func(r *run) {
			first := r.first.lapse("name")
			second := r.other().grant("name", short)
			second.runOut()
			r.higher(first, second)
			r.higher(second, r.first.grant("name", long))
		},
	},
	{
		name:  "rise-over-break",
		claim: "A grant after a break has a higher token.",
		needs: fencing | breaking,
		run: func(r *run) {
			last := r.first.grant("name", long)
			for range 5 {
				r.first.breakHold("name")
				next := r.first.grant("name", long)
				r.higher(last, next)
				last = next
			}
		},
	},
	{
		name:  "rise-over-reopening",
		claim: "A grant by a store opened when all others are closed has a higher token.",
		needs: fencing,
		run: func(r *run) {
			first := r.first.grant("name", long)
			first.end()
			if err := r.first.Close(); err != nil {
				r.Fatalf("Close: %v", err)
			}
			time.Sleep(precision)
			r.higher(first, r.open().grant("name", long))
		},
	},
	{
		name:  "floor",
		claim: "The token of a grant is at least the floor asked for.",
		needs: fencing,
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.end()
			floor := h.token + 1_000_000_000
			if next := r.grantAbove(floor, "name"); next.token < floor {
				r.Errorf("above a floor of %d the token %d is granted", floor, next.token)
			}
		},
	},
	{
		name:  "floor-lasts",
		claim: "Grants after one with a floor far ahead go on above it, over release and expiry.",
		needs: fencing,
		run: func(r *run) {
			const ahead = driver.MaxToken / 2
			last := r.grantAbove(ahead, "name")
			last.end()
			next := r.other().grant("name", short)
			r.higher(last, next)
			next.runOut()
			r.higher(next, r.first.grant("name", long))
		},
	},
	{
		name:  "floor-below",
		claim: "A floor below the last token does not lower the next.",
		needs: fencing,
		run: func(r *run) {
			last := r.grantAbove(driver.MaxToken/2, "name")
			last.end()
			r.higher(last, r.grantAbove(1, "name"))
		},
	},
	{
		name:  "floor-of-a-refusal",
		claim: "The floor of an attempt that was refused has no effect on later grants.",
		needs: fencing,
		run: func(r *run) {
			h := r.first.grant("name", long)
			time.Sleep(short) // A grant of a quorum comes to its slowest nodes after the answer, which no call tells.
			req := r.first.request("name", long)
			req.Floor = driver.MaxToken / 2
			r.first.refuse(req)
			time.Sleep(short) // So does an attempt, after the refusal.
			h.end()
			if next := r.first.grant("name", long); next.token >= req.Floor {
				r.Errorf("the token %d shows that a refused attempt with the floor %d changed something", next.token, req.Floor)
			}
		},
	},
	{
		name:  "floor-of-a-repetition",
		claim: "The token is the same in a repetition, also when it asks for a higher floor.",
		needs: fencing,
		run: func(r *run) {
			h := r.first.grant("name", long)
			req := r.first.request("name", long)
			req.Owner, req.Floor = h.owner, driver.MaxToken/2
			if again := r.first.take(req); again.token != h.token {
				r.Errorf("a repetition with a floor is granted the token %d, want %d as before", again.token, h.token)
			}
		},
	},
	{
		name:  "rise-over-restart",
		claim: "A grant after a restart has a higher token, whether holds survive it or not.",
		needs: fencing | restart,
		run: func(r *run) {
			first := r.first.grant("name", long)
			first.end()
			time.Sleep(precision) // A restart takes longer than a grant.
			r.backing.Restart(r)
			r.higher(first, r.open().grant("name", long))
		},
	},
}

func (r *run) grantAbove(floor int64, name string) *hold {
	r.Helper()
	req := r.first.request(name, long)
	req.Floor = floor
	return r.first.take(req)
}
