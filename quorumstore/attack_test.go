package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// An Acquire that a renewal has found lost while it was under way is not granted: the release has
// begun.
func TestAcquireMeetsALostRenewal(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		for _, conn := range conns {
			conn.Set(faultstore.Acquire, slow(100*time.Millisecond, 0))
		}
		req := request("mine")
		renewed := make(chan driver.State)
		go func() {
			time.Sleep(50 * time.Millisecond)
			renewed <- renew(t, s, req)
		}()
		res, err := s.Acquire(t.Context(), req)
		if got := <-renewed; got == driver.Lost && (res.Granted || err == nil) {
			t.Errorf("after Lost: %+v, %v", res, err)
		}
		time.Sleep(time.Second)
		c.holders(t, "", "", "")
	})
}

// A request with a Place is answered with the hold of a rival when rivals have so many nodes that
// the others are no majority. It is not when dead nodes are a part of the reason, and a single
// attempt is not. What it was granted is given back before the answer.
func TestDividedVoteIsHeldForAWaiter(t *testing.T) {
	for _, test := range []struct {
		rivals, dead int
		waits, held  bool
	}{
		{2, 0, true, true}, {3, 0, true, true}, {1, 1, true, false}, {2, 1, true, true}, {2, 0, false, false},
	} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			for _, server := range c {
				server.set(slow(there, back))
			}
			for i, conn := range c.connect()[:test.rivals] {
				rival := request(fmt.Sprint("rival ", i))
				if _, err := conn.Acquire(t.Context(), rival); err != nil {
					t.Fatal(err)
				}
			}
			if test.dead > 0 {
				c[2].set(faultstore.Refuse)
			}
			req := request("mine")
			if test.waits {
				req.Place = time.Second
			}
			res, err := c.client(t).Acquire(t.Context(), req)
			var again *driver.RetryError
			if held := err == nil && !res.Granted; held != test.held || !held && !errors.As(err, &again) {
				t.Errorf("%+v: %+v, %v", test, res, err)
			}
			if left := res.Held.Remaining; test.held && (left <= 0 || left > longPause || res.Held.Holder == "") {
				t.Errorf("%+v: %+v", test, res)
			}
			for i, server := range c {
				if server.holder() == "mine" {
					t.Errorf("%+v: node %d has a part after the answer", test, i)
				}
			}
		})
	}
}

// A release that a lost renewal has begun may cross that of the owner at a node, which then ends
// the part for the latter. The Release of an owner whose entry is lost reports none, and keeps
// nothing.
func TestReleaseOfALostEntryReportsNone(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Hour} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			s := join(t, conns)
			conns[1].Once(faultstore.Acquire, func(context.Context, faultstore.Op, func()) error { return errors.New("lost") })
			c[2].set(c[2].hang)
			req := request("mine")
			if res, err := s.Acquire(t.Context(), req); err == nil {
				t.Fatalf("by one node: %+v", res)
			}
			conns[0].Once(faultstore.Release, slow(time.Second, 0))
			if got := renew(t, s, req); got != driver.Lost {
				t.Fatalf("Renew is answered %v", got)
			}
			synctest.Wait() // until the background release meets with its fault
			ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner, Keep: keep})
			if ended || keep == 0 && err != nil { // The node that hangs leaves open whether the name is kept.
				t.Errorf("Release of a lost entry, keep %v: %v, %v", keep, ended, err)
			}
			time.Sleep(2 * time.Second)
			for i, server := range c {
				if records := server.records(); len(records) > 0 {
					t.Errorf("node %d has %v", i, records)
				}
			}
		})
	}
}
