package quorumstore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Close closes the nodes if, and only if, CloseStores is set, and waits for what
// has to be given back.
func TestClose(t *testing.T) {
	for _, owns := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			s := newEngine(stores(conns), &Options{CloseStores: owns})
			c[2].set(slow(20*time.Millisecond, 20*time.Millisecond))
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

// What a minority that hangs still owes does not hold up Close: not at all if it
// did not answer before, else for a small part of the Timeout, and for a very small
// one if it has never answered.
func TestCloseLeavesAHungMinority(t *testing.T) {
	for what, c := range map[string]struct {
		proven bool
		before time.Duration // for how long it has hung
		most   time.Duration
	}{
		"hung just now":          {true, 0, DefaultTimeout / knownNodeShare},
		"hung for a while":       {true, 3 * DefaultTimeout, 0},
		"never answered":         {false, 0, DefaultTimeout / unknownNodeShare},
		"never, and for a while": {false, 3 * DefaultTimeout, 0},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, servers cluster) {
				s := servers.client(t)
				if c.proven {
					if _, _, err := s.Lookup(t.Context(), name); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				servers[0].set(servers[0].hang)
				servers[1].set(servers[1].hang)
				req := request("mine")
				grant(t, s, req)
				time.Sleep(c.before)
				giveBack(t, s, req)
				if d := took(func() { s.Close() }); d > c.most {
					t.Errorf("Close took %v, want %v", d, c.most)
				}
				servers.holders(t, "", "", "", "", "")
			})
		})
	}
}
