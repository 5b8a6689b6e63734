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
	"github.com/holdfast-go/holdfast/memstore"
)

func TestCombine(t *testing.T) {
	strong := driver.Guarantees{
		Scope: driver.ScopeNetwork, Fencing: true, HolderCrash: driver.RecoveryAtOnce,
		Restart: driver.FateKept, Failover: driver.FateKept,
		Fair: true, Shared: true, Limited: true, Lookup: true, List: true, Break: true, Metadata: true, Keep: true,
	}
	weak := driver.Guarantees{
		Scope: driver.ScopeHost, HolderCrash: driver.RecoveryTTL,
		Restart: driver.FateForgotten, Failover: driver.FateFreed,
	}
	mixed := driver.Guarantees{
		Store: "quorum", Scope: driver.ScopeHost, HolderCrash: driver.RecoveryAtOnce,
		Restart: driver.FateForgotten, Failover: driver.FateForgotten,
	}
	inMemory := strong
	inMemory.Scope = driver.ScopeProcess
	whole := strong
	whole.Store, whole.Fair, whole.Shared, whole.Limited = "quorum", false, false, false
	withMemory := whole
	withMemory.Scope = driver.ScopeProcess
	for what, c := range map[string]struct {
		nodes []driver.Guarantees
		want  driver.Guarantees
	}{
		"one":                    {[]driver.Guarantees{strong}, whole},
		"three alike":            {[]driver.Guarantees{strong, strong, strong}, whole},
		"one of three in memory": {[]driver.Guarantees{strong, inMemory, strong}, withMemory},
		"one of three weak":      {[]driver.Guarantees{strong, weak, strong}, mixed},
	} {
		if got := combineGuarantees(c.nodes, len(c.nodes)/2+1); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// Majorities of nodes with a limit are no limit: three nodes that each admit two holders admit three
// with a majority. So a quorum refuses such requests, and the error has the figures.
func TestLimitOfNodes(t *testing.T) {
	nodes := []driver.Store{memstore.New(), memstore.New(), memstore.New()}
	votes := map[string]int{}
	for owner, reached := range map[string][]int{"a": {0, 1}, "b": {1, 2}, "c": {0, 2}} {
		for _, i := range reached {
			req := request(owner)
			req.Limit = 2
			if res, err := nodes[i].Acquire(t.Context(), req); err != nil || !res.Granted {
				t.Fatalf("Acquire by %s at node %d: %+v, %v, want it granted", owner, i, res, err)
			}
			votes[owner]++
		}
	}
	s := New(nodes, nil)
	t.Cleanup(func() { _ = s.Close() })
	for owner, n := range votes {
		if n < s.need {
			t.Errorf("%s has %d votes, want a majority: the example proves nothing", owner, n)
		}
	}
	for limit, says := range map[int]string{2: "3 for a Limit of 2 on 3 nodes", driver.Shared: "different tokens"} {
		req := request("d")
		req.Limit = limit
		if _, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), says) {
			t.Errorf("Acquire with Limit %d: %v, want ErrUnsupported and %q", limit, err, says)
		}
	}
}

// Two majorities share a node, and no smaller number would do.
func TestMajority(t *testing.T) {
	var nodes []driver.Store
	for n := 1; n <= 7; n++ {
		nodes = append(nodes, memstore.New())
		if need := New(nodes, nil).need; 2*need <= n || 2*(need-1) > n {
			t.Errorf("%d of %d nodes are taken for a majority", need, n)
		}
	}
}

// Two hosts that share 3 of 4 nodes exclude each other, since a majority of 4 is
// 3; two that share 2 of 3 do not.
func TestReach(t *testing.T) {
	p, h, n := driver.ScopeProcess, driver.ScopeHost, driver.ScopeNetwork
	for _, c := range []struct {
		nodes []driver.Scope
		want  driver.Scope
	}{
		{[]driver.Scope{n, n, n}, n},
		{[]driver.Scope{n, n, h}, h},
		{[]driver.Scope{n, n, n, h}, n},
		{[]driver.Scope{n, n, n, p}, n},
		{[]driver.Scope{n, n, n, n, h}, h},
		{[]driver.Scope{n, h, p}, p},
		{[]driver.Scope{p}, p},
	} {
		var nodes []driver.Guarantees
		for _, scope := range c.nodes {
			nodes = append(nodes, driver.Guarantees{Scope: scope})
		}
		if got := combinedScope(nodes, len(nodes)/2+1); got != c.want {
			t.Errorf("nodes of %v reach %v, want %v", c.nodes, got, c.want)
		}
	}
}

func TestNewWithoutStores(t *testing.T) {
	for what, nodes := range map[string][]driver.Store{"none": nil, "nil": {memstore.New(), nil}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New of %s did not panic", what)
				}
			}()
			New(nodes, nil)
		}()
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
		if _, err := c.connect()[0].Acquire(t.Context(), request("alone")); err != nil {
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

// A hung node does not keep a list back for long.
func TestListWithAHungNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		grant(t, s, request("mine"))
		synctest.Wait()
		c[2].set(c[2].hang)
		n := 0
		d := took(func() {
			for _, err := range s.List(t.Context(), "") {
				if err != nil {
					t.Error(err)
				}
				n++
			}
		})
		if n != 1 || d > DefaultTimeout {
			t.Errorf("%d entries in %v", n, d)
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
		if got := renew(t, s, req); got != driver.Renewed {
			t.Errorf("with two nodes left: %d", got)
		}
		c.holders(t, "", "mine", "mine") // a node that lost it is not given it back
		c[1].restart()
		if got := renew(t, s, req); got != driver.RenewLost {
			t.Errorf("with one node left: %d", got)
		}
		synctest.Wait()
		c.holders(t, "", "", "")
	})
}
