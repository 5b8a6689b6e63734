package quorumstore

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// Close closes the nodes if, and only if, CloseStores is set, and waits for what
// has to be given back.
func TestClose(t *testing.T) {
	for _, owns := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			s := New(stores(conns), &Options{CloseStores: owns})
			c[2].set(slow(200*time.Millisecond, 200*time.Millisecond))
			req := request("mine")
			grant(t, s, req)
			time.Sleep(time.Second)
			c.holders(t, "mine", "mine", "mine")
			giveBack(t, s, req)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			c.holders(t, "", "", "")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := conns[0].Lookup(t.Context(), name); errors.Is(err, driver.ErrClosed) != owns {
				t.Errorf("with CloseStores %v a node says %v", owns, err)
			}
		})
	}
}

// What a minority that hangs still owes does not hold up Close for more than a small part of the
// Timeout, also if it has answered before. What another has not confirmed is sent once more.
func TestCloseLeavesAHungMinority(t *testing.T) {
	for _, before := range []time.Duration{0, 3 * DefaultTimeout} { // for how long it has hung
		inBubble(t, 7, func(t *testing.T, servers cluster) {
			conns := servers.connect()
			s := join(t, conns)
			earlier := request("earlier")
			earlier.Name = "earlier"
			grant(t, s, earlier)
			servers[0].set(servers[0].hang)
			servers[1].set(servers[1].hang)
			req := request("mine")
			grant(t, s, req)
			time.Sleep(before)
			conns[6].Once(faultstore.Release, faultstore.Refuse)
			giveBack(t, s, req)
			if d := took(func() { s.Close() }); d > 2*DefaultTimeout/silentShare {
				t.Errorf("Close took %v", d)
			}
			servers.holders(t, "", "", "", "", "", "", "")
		})
	}
}
