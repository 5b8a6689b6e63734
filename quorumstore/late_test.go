package quorumstore

import (
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

// A hold that another Store has been granted is neither Held nor Lost while one node has it, one
// has forgotten it, and one hangs.
func TestAdoptedHoldOfWhichANodeHangsIsKept(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		req := request("mine")
		grant(t, c.client(t), req)
		time.Sleep(time.Second) // until all nodes have it
		c[0].restart()
		c[1].set(c[1].hang)
		adopter := c.client(t)
		entries, err := adopter.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
		if err == nil || entries[0].State != driver.Unknown {
			t.Errorf("Renew is answered %v, %v", entries, err)
		}
		c[1].set(nil)
		if got := renew(t, adopter, req); got != driver.Held {
			t.Errorf("Renew is answered %v once the node answers", got)
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
		c[0].restart()
		c[1].restart()
		conns := c.connect()
		conns[0].Set(faultstore.Renew, slow(10*time.Millisecond, 0)) // The others decide nothing yet.
		if got := renew(t, join(t, conns), req); got != driver.Lost {
			t.Errorf("Renew is answered %v", got)
		}
		time.Sleep(time.Second)
		c.holders(t, "", "", "")
	})
}
