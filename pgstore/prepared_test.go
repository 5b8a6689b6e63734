//go:build unix

package pgstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// Whatever a store believes of a name, an attempt has the outcome that the row
// of the name calls for.
func TestCachedStates(t *testing.T) {
	t.Parallel()
	s := open(t)
	const first = 5 // the token of rows that are made here
	row := "INSERT INTO @table@ (lock_name, holder_id, holder, acquired_at, granted_at, expires_at, kept_by, metadata, token) VALUES ($1, $2, 'h', %s, %[1]s, %s, $3, '{}', 5)"
	states := map[string]struct {
		make          string // of the row, from the name, its owner, and who keeps it
		owner         string
		granted, kept bool
	}{
		"no row":    {granted: true},
		"free":      {make: fmt.Sprintf(row, "now()", pastExpiry), granted: true},
		"run out":   {make: fmt.Sprintf(row, "now()", "clock_timestamp()"), owner: "x", granted: true},
		"held":      {make: fmt.Sprintf(row, "now()", "now() + interval '1 hour'"), owner: "x"},
		"kept":      {make: fmt.Sprintf(row, "now()", "now() + interval '1 hour'"), kept: true},
		"one's own": {make: fmt.Sprintf(row, "now()", "now() + interval '1 hour'"), owner: "own", granted: true},
	}
	for state, want := range states {
		for belief, note := range map[string]func(name string){
			"unknown":  func(string) {},
			"free":     func(name string) { s.nameCache.set(name, stateFree, 0) },
			"held":     func(name string) { s.nameCache.set(name, stateHeld, time.Hour) },
			"held out": func(name string) { s.nameCache.set(name, stateHeld, -1) },
		} {
			name := state + ", believed " + belief
			if want.make != "" {
				change(t, s, want.make, name, want.owner, "x")
			}
			note(name)
			req := pgtest.Request(name, time.Minute)
			if want.owner == "own" {
				req.Owner = "own"
			}
			res, err := s.Acquire(t.Context(), req)
			if err != nil || res.Granted != want.granted {
				t.Errorf("%s: %+v, %v, want granted %v", name, res, err, want.granted)
			}
			switch own := want.owner == "own"; {
			case own && res.Token != first, want.granted && !own && res.Token <= first:
				t.Errorf("%s: the token %d, the row had %d", name, res.Token, first)
			case !want.granted && (res.Held.Remaining <= time.Minute || res.Held.Kept != want.kept || res.Held.Token != first):
				t.Errorf("%s: %+v is in the way", name, res.Held)
			}
			if got := renew(t, s, req)[0]; (got == olddriver.Renewed) != want.granted {
				t.Errorf("%s: Renew: %v", name, got)
			}
		}
	}
}
