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
)

// When a majority has lost a hold, its rest is given back.
func TestRestOfALostHoldIsReleased(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		req := request("mine")
		grant(t, s, req)
		synctest.Wait()
		c[0].restart()
		if got := renew(t, s, req); got != driver.Held {
			t.Errorf("with two nodes left: %d", got)
		}
		c.holders(t, "", "mine", "mine") // a node that lost it is not given it back
		c[1].restart()
		if got := renew(t, s, req); got != driver.Lost {
			t.Errorf("with one node left: %d", got)
		}
		synctest.Wait()
		c.holders(t, "", "", "")
	})
}

// An error has the reply of each node, and matches what holds for the whole.
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
			var votes *majorityError
			if !errors.As(err, &votes) {
				t.Fatalf("%s: %v does not list the replies", what, err)
			}
			if strings.Count(err.Error(), "; node ") != 3 || !strings.Contains(err.Error(), "node 3 (test): ") {
				t.Errorf("%s: %v", what, err)
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

// What only a minority has is no hold; what may have a majority is unclear.
func TestLookupAndList(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		if _, err := c.connect()[0].Acquire(t.Context(), request("alone")); err != nil {
			t.Fatal(err)
		}
		if records, err := s.Lookup(t.Context(), name); err != nil || len(records) > 0 {
			t.Errorf("a minority: %+v, %v", records, err)
		}
		for rec, err := range s.List(t.Context(), "") {
			t.Errorf("a minority is listed: %+v, %v", rec, err)
		}
		c[2].set(faultstore.Refuse)
		var votes *majorityError
		if _, err := s.Lookup(t.Context(), name); !errors.As(err, &votes) || !strings.Contains(err.Error(), `node 1 (test): ["invoices/42" held by "alone"`) {
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
