//go:build unix

package redisstore_test

import (
	"slices"
	"time"
)

// count counts what came of the claims of all workers, name by name.
func (f *failover) count() tally {
	all := tally{Grants: len(f.claims)}
	for _, c := range f.claims {
		if c.kept {
			all.Window++
			if c.lost {
				all.Forgotten++
			}
		}
	}
	for _, claims := range f.byName() {
		all.Double += doubles(claims)
		all.Falling += falls(claims)
	}
	return all
}

func (f *failover) byName() map[string][]claim {
	names := map[string][]claim{}
	for _, c := range f.claims {
		names[c.name] = append(names[c.name], c)
	}
	return names
}

// judge fails for what must not happen, and shows the claims concerned.
func (f *failover) judge() {
	for name, claims := range f.byName() {
		double, falling := doubles(claims), falls(claims)
		if !f.d.lags || f.d.replicas == 0 {
			double = 0 // Nobody has promised.
		}
		if double+falling == 0 {
			continue
		}
		f.t.Errorf("%s was granted %d times while it was held and confirmed by a replica, and %d tokens have not risen. "+
			"Since the end of the master:", name, double, falling)
		for _, c := range claims {
			f.t.Logf("token %d asked for at %v, granted at %v, held until %v, kept %v, released: %v",
				c.token, c.asked.Sub(f.ended), c.granted.Sub(f.ended), c.until.Sub(f.ended), c.kept, c.released)
		}
	}
}

// doubles counts the grants of a lock that another client believed to hold.
func doubles(claims []claim) (n int) {
	slices.SortFunc(claims, func(a, b claim) int { return a.granted.Compare(b.granted) })
	var until time.Time
	for _, c := range claims {
		if c.granted.Before(until) {
			n++
		}
		if c.until.After(until) {
			until = c.until
		}
	}
	return n
}

// falls counts the tokens that are not above that of every hold that was granted
// before this one was asked for.
func falls(claims []claim) (n int) {
	for _, c := range claims {
		for _, earlier := range claims {
			if earlier.granted.Before(c.asked) && earlier.token >= c.token {
				n++
				break
			}
		}
	}
	return n
}
