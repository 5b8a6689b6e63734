package quorumstore

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// What a node has not confirmed of a release is sent again, for as long as the last renewal may
// make the hold last, also of one that another Store was granted.
func TestUnconfirmedReleaseIsRepeated(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			s := join(t, conns)
			req := request("mine")
			if adopted {
				grant(t, c.client(t), req)
			} else {
				grant(t, s, req)
			}
			time.Sleep(time.Second) // until all nodes have it
			req.TTL = 5 * time.Minute
			renew(t, s, req)
			conns[0].Set(faultstore.Release, faultstore.Refuse)
			giveBack(t, s, req)
			time.Sleep(2 * time.Minute)
			c.holders(t, "mine", "", "")
			conns[0].Set(faultstore.Release, nil)
			time.Sleep(15 * time.Second)
			c.holders(t, "", "", "")
		})
	}
}

// However often a release is made that nobody confirms, each node is sent it by one loop, which
// ends when the node has confirmed one, or the entry must have ended.
func TestReleaseIsRepeatedOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		req := request("mine")
		req.TTL = time.Hour
		for i, conn := range conns {
			conn.Set(faultstore.Acquire, []faultstore.Fault{faultstore.LoseReply, faultstore.Hang, faultstore.LoseReply}[i])
			conn.Set(faultstore.Release, faultstore.Refuse)
		}
		if res, err := s.Acquire(t.Context(), req); err == nil {
			t.Fatalf("Acquire without a reply: %+v", res)
		}
		for range 20 {
			if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err == nil || driver.IsNotApplied(err) {
				t.Fatalf("a release without a node, which is sent again: %v", err)
			}
		}
		for _, most := range [][]int64{{4, 4, 4}, {0, 1, 0}, {0, 0, 0}} {
			for i, n := range s.nodes {
				if pending := n.pending.Load(); pending > most[i] {
					t.Errorf("node %d: %d requests are pending, want %d at most", i, pending, most[i])
				}
				conns[i].Set(faultstore.Release, nil)
			}
			giveBack(t, s, req)
			time.Sleep(20 * time.Minute * time.Duration(5-most[1]))
		}
	})
}

// A hold of three nodes is Held if two of them say so, and Lost if two say that they do not have
// it. Else it is not known, and cannot be kept. That applies to one that another Store was granted,
// too, as after an Adopt. What is left of a lost one is released.
func TestTwoOfThreeNodesDecide(t *testing.T) {
	for nodes, want := range map[string]driver.State{
		"has has hung": driver.Held, "has has lost": driver.Held, "has lost lost": driver.Lost, "has lost hung": driver.Unknown,
	} {
		for _, adopted := range []bool{false, true} {
			inBubble(t, 3, func(t *testing.T, c cluster) {
				conns := c.connect()
				s, req := join(t, conns), request("mine")
				if adopted {
					grant(t, c.client(t), req)
				} else {
					grant(t, s, req)
				}
				time.Sleep(time.Second) // until all nodes have it
				for i, node := range strings.Fields(nodes) {
					switch node {
					case "lost":
						c[i].restart()
						conns[i].Set(faultstore.Renew, slow(10*time.Millisecond, 0)) // It replies after the one that has it.
					case "hung":
						c[i].set(c[i].hang)
					}
				}
				entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
				if entries[0].State != want || (err != nil) != (want == driver.Unknown) {
					t.Errorf("%s, adopted %v: %v, %v, want %v", nodes, adopted, entries, err, want)
				}
				switch want {
				case driver.Lost:
					time.Sleep(time.Second)
					c.holders(t, "", "", "")
				case driver.Unknown:
					if kept, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner, Keep: time.Hour}); err == nil {
						t.Errorf("%s, adopted %v: kept %v, by one node of three", nodes, adopted, kept)
					}
				}
			})
		}
	}
}

// A renewal under another token, through a Store that does not know the entry, is answered Lost,
// and ends nothing.
func TestRenewalUnderAnotherToken(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		req := request("mine")
		token := grant(t, c.client(t), req)
		time.Sleep(time.Second) // until all nodes have it
		entries, err := c.client(t).Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, Token: token + 1, TTL: req.TTL}})
		if err != nil || entries[0].State != driver.Lost {
			t.Errorf("%v, %v", entries, err)
		}
		time.Sleep(time.Second)
		c.holders(t, "mine", "mine", "mine")
	})
}
