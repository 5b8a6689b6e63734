package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Two hosts that share 3 of 4 nodes exclude each other, since a majority of 4 is
// 3; two that share 2 of 3 do not.
func TestReach(t *testing.T) {
	p, h, n := olddriver.ScopeProcess, olddriver.ScopeHost, olddriver.ScopeNetwork
	for _, c := range []struct {
		nodes []olddriver.Scope
		want  olddriver.Scope
	}{
		{[]olddriver.Scope{n, n, n}, n},
		{[]olddriver.Scope{n, n, h}, h},
		{[]olddriver.Scope{n, n, n, h}, n},
		{[]olddriver.Scope{n, n, n, p}, n},
		{[]olddriver.Scope{n, n, n, n, h}, h},
		{[]olddriver.Scope{n, h, p}, p},
		{[]olddriver.Scope{p}, p},
	} {
		var nodes []olddriver.Guarantees
		for _, scope := range c.nodes {
			nodes = append(nodes, olddriver.Guarantees{Scope: scope})
		}
		if got := combinedScope(nodes, len(nodes)/2+1); got != c.want {
			t.Errorf("nodes of %v reach %v, want %v", c.nodes, got, c.want)
		}
	}
}

// An Error has the vote of each node, and matches what holds for the whole.
func TestError(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		denied := fmt.Errorf("%w: not this name", driver.ErrInvalid)
		deny := func(_ context.Context, _ faultstore.Op, _ func()) error { return denied }
		boom := func(_ context.Context, _ faultstore.Op, _ func()) error { return errFault }
		for what, step := range map[string]struct {
			faults     []faultstore.Fault
			notApplied bool
			permanent  bool
		}{
			"refused":                {[]faultstore.Fault{faultstore.Refuse, faultstore.Refuse, faultstore.Refuse}, true, false},
			"refused by a majority":  {[]faultstore.Fault{faultstore.Refuse, faultstore.Refuse, boom}, true, false},
			"unclear":                {[]faultstore.Fault{faultstore.Refuse, boom, boom}, false, false},
			"one of three permanent": {[]faultstore.Fault{deny, boom, boom}, false, false},
			"permanent":              {[]faultstore.Fault{deny, deny, boom}, true, true},
		} {
			for i, f := range step.faults {
				c[i].set(f)
			}
			req := request("mine")
			_, err := s.Acquire(t.Context(), req)
			var votes *Error
			if !errors.As(err, &votes) {
				t.Fatalf("%s: %v is no Error", what, err)
			}
			// A vote may be missing once the others have decided it.
			for i, v := range votes.Votes {
				if v.Node != i+1 || v.Store != "test" || v.Err == nil {
					t.Errorf("%s: vote %d is %+v", what, i, v)
				}
			}
			if driver.IsNotApplied(err) && !step.notApplied || driver.Permanent(err) && !step.permanent {
				t.Errorf("%s: not applied %v, permanent %v", what, driver.IsNotApplied(err), driver.Permanent(err))
			}
			if strings.Contains(err.Error(), req.Owner) {
				t.Errorf("%s: %v", what, err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
	})
}

// The only node of a quorum is as good as itself.
func TestOneNodePassesErrorsThrough(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c cluster) {
		s := c.client(t)
		c[0].set(func(context.Context, faultstore.Op, func()) error { return errFault })
		if _, err := s.Acquire(t.Context(), request("mine")); !errors.Is(err, errFault) {
			t.Errorf("Acquire: %v", err)
		}
		if _, _, err := s.Lookup(t.Context(), name); !errors.Is(err, errFault) {
			t.Errorf("Lookup: %v", err)
		}
	})
}

// What only a minority has is no hold; what may have a majority is unclear.
func TestLookupAndList(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		if _, err := c.connect()[0].Acquire(t.Context(), toNode(request("alone"))); err != nil {
			t.Fatal(err)
		}
		if rec, found, err := s.Lookup(t.Context(), name); err != nil || found {
			t.Errorf("a minority: %+v, %v, %v", rec, found, err)
		}
		for rec, err := range s.List(t.Context(), "") {
			t.Errorf("a minority is listed: %+v, %v", rec, err)
		}
		c[2].set(faultstore.Refuse)
		var votes *Error
		if _, _, err := s.Lookup(t.Context(), name); !errors.As(err, &votes) || votes.Votes[0].Held.Holder != "alone" {
			t.Errorf("what may be a majority: %v", err)
		}
		yielded := 0
		for rec, err := range s.List(t.Context(), "") {
			yielded++
			if err == nil || rec.Name != "" || !strings.Contains(err.Error(), name) {
				t.Errorf("what may be a majority is listed: %+v, %v", rec, err)
			}
		}
		if yielded != 1 {
			t.Errorf("%d entries", yielded)
		}
		c[1].set(faultstore.Refuse)
		for rec, err := range s.List(t.Context(), "") {
			if !errors.As(err, &votes) {
				t.Errorf("a list without a majority: %+v, %v", rec, err)
			}
		}
	})
}

// When a majority has lost a hold, its rest is given back.
func TestRestOfALostHoldIsReleased(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		req := request("mine")
		grant(t, s, req)
		synctest.Wait()
		c[0].restart()
		if got := renew(t, s, req); got != olddriver.Renewed {
			t.Errorf("with two nodes left: %d", got)
		}
		c.holders(t, "", "mine", "mine") // a node that lost it is not given it back
		c[1].restart()
		if got := renew(t, s, req); got != olddriver.RenewLost {
			t.Errorf("with one node left: %d", got)
		}
		synctest.Wait()
		c.holders(t, "", "", "")
	})
}
