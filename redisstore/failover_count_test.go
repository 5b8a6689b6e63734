//go:build unix

package redisstore_test

import (
	"slices"
	"time"
)

// count judges the claims of all workers, name by name.
func (f *failover) count() tally {
	var all tally
	byName := map[string][]claim{}
	for _, c := range f.claims {
		byName[c.name] = append(byName[c.name], c)
		all.Grants++
		if c.kept {
			all.Window++
			if c.lost {
				all.Forgotten++
			}
		}
	}
	for _, claims := range byName {
		all.Double += doubles(claims)
		all.Falling += falls(claims)
	}
	return all
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
