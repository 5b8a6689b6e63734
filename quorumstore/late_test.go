package quorumstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// What a node has not confirmed of a release is sent again, for as long as the last renewal may
// make the hold last, and once more at Close.
func TestUnconfirmedReleaseIsRepeated(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		req := request("mine")
		req.TTL = 5 * time.Second
		grant(t, s, req)
		time.Sleep(time.Second) // until all nodes have it
		req.TTL = time.Minute
		renew(t, s, req)
		conns[0].Set(faultstore.Release, faultstore.Refuse)
		giveBack(t, s, req)
		time.Sleep(15 * time.Second)
		c.holders(t, "mine", "", "")
		conns[0].Set(faultstore.Release, nil)
		time.Sleep(15 * time.Second)
		c.holders(t, "", "", "")

		req = request("mine")
		grant(t, s, req)
		conns[0].Once(faultstore.Release, faultstore.Refuse)
		giveBack(t, s, req)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		c.holders(t, "", "", "")
	})
}

// A permanent error is the last answer to a release.
func TestReleaseEndsAtAPermanentError(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		conns[0].Set(faultstore.Release, refuse(driver.ErrCorrupt))
		req := request("mine")
		grant(t, s, req)
		giveBack(t, s, req)
		time.Sleep(10 * time.Second)
		if n := conns[0].Calls(faultstore.Release); n != 1 {
			t.Errorf("the node has got %d releases", n)
		}
	})
}

// A release that keeps a name and that a node has not got is not sent again after a later one.
func TestLaterReleaseCounts(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		req := request("mine")
		grant(t, s, req)
		conns[0].Once(faultstore.Release, faultstore.Refuse)
		for _, keep := range []time.Duration{time.Hour, 2 * time.Hour} {
			ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner, Keep: keep})
			if err != nil || !ended {
				t.Fatal(ended, err)
			}
		}
		time.Sleep(5 * time.Second)
		records, err := c[0].memory().Lookup(t.Context(), name)
		if err != nil || len(records) != 1 || records[0].Remaining < time.Hour {
			t.Errorf("the name is kept by %v, %v, want it for two hours", records, err)
		}
	})
}

// What is left of a hold that another Store has been granted is released when a renewal finds it
// there and the majority lost, as after an Adopt.
func TestRestOfAnAdoptedHoldIsReleased(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		req := request("mine")
		grant(t, c.client(t), req)
		time.Sleep(time.Second) // until all nodes have it
		for _, server := range c[:2] {
			if _, err := server.memory().Break(t.Context(), name, 0); err != nil {
				t.Fatal(err)
			}
		}
		conns := c.connect()
		conns[0].Set(faultstore.Renew, slow(10*time.Millisecond, 0)) // The others decide nothing yet.
		if got := renew(t, join(t, conns), req); got != driver.Lost {
			t.Errorf("Renew is answered %v", got)
		}
		time.Sleep(time.Second)
		c.holders(t, "", "", "")
	})
}

// A node that leaves requests unanswered gets no more of them than are pending for it at most.
func TestSilentNodeGetsNoMore(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Release} {
			conns[0].Set(op, func(ctx context.Context, _ faultstore.Op, _ func()) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}
		for i := range 2 * silentLimit {
			req := request("mine")
			req.Name = fmt.Sprint(i)
			grant(t, s, req)
			giveBack(t, s, req)
			if i == 0 {
				time.Sleep(3 * DefaultTimeout)
			}
		}
		if n := conns[0].Calls(faultstore.Acquire); n > silentLimit {
			t.Errorf("the node has got %d acquisitions", n)
		}
	})
}
