package quorumstore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Contenders that have the nodes among them, 2 and 2 and 1, do not lock each
// other out: one of them wins, and soon.
func TestSplitVoteIsResolved(t *testing.T) {
	for range 50 {
		inBubble(t, 5, func(t *testing.T, c cluster) {
			near := [][]int{{0, 1}, {2, 3}, {4}}
			var granted atomic.Int32
			var group sync.WaitGroup
			began := time.Now()
			for _, mine := range near {
				conns := c.connect()
				for i, conn := range conns {
					delay := 10 * time.Millisecond
					for _, n := range mine {
						if n == i {
							delay = time.Millisecond
						}
					}
					conn.Set(faultstore.Acquire, slow(delay, delay))
					conn.Set(faultstore.Release, slow(delay, delay))
				}
				s := join(t, conns)
				group.Go(func() {
					if res := acquire(t, s, request("contender")); res.Granted {
						granted.Add(1)
					} else if res.Held.Holder == "" {
						t.Error("a refusal has no holder")
					}
				})
			}
			group.Wait()
			if n := granted.Load(); n != 1 {
				t.Errorf("%d of three contenders were granted", n)
			}
			if d := time.Since(began); d > 3*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// Answers that are lost on a majority are an error that leaves it open; the same
// request sent again is granted, and nothing stays locked.
func TestLostReplies(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		for _, lost := range []int{1, 2, 3} {
			for _, conn := range conns[:lost] {
				conn.Once(faultstore.Acquire, faultstore.LoseReply)
			}
			req := request("mine")
			res, err := s.Acquire(t.Context(), req)
			if granted := lost < 2; res.Granted != granted || (err == nil) != granted {
				t.Errorf("with %d answers lost: %+v, %v", lost, res, err)
			}
			if err != nil && driver.IsNotApplied(err) {
				t.Errorf("an error after which holds may be there: %v", err)
			}
			grant(t, s, req)
			if !giveBack(t, s, req) {
				t.Error("Release reports no hold")
			}
			time.Sleep(time.Second)
			c.holders(t, "", "", "")
		}
	})
}

// A majority that was granted later than the TTL allows is no hold.
func TestGrantedTooLate(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		for _, s := range c {
			s.set(slow(15*time.Millisecond, 15*time.Millisecond))
		}
		s := c.client(t)
		req := request("mine")
		req.TTL = 32 * time.Millisecond // 29.68 ms without drift
		if res, err := s.Acquire(t.Context(), req); err == nil {
			t.Errorf("granted too late: %+v", res)
		}
		time.Sleep(time.Second)
		c.holders(t, "", "", "")
		req.TTL = 33 * time.Millisecond // 30.67 ms without drift
		grant(t, s, req)
	})
}

// A release that was not confirmed may still be under way. A node where it is
// has no vote on its owner, or that release would end a hold behind its back.
func TestReleaseStillUnderWay(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s, direct := c.client(t), c.connect()[1]
		c[2].set(faultstore.Refuse)
		stale := request("stale")
		if _, err := direct.Acquire(t.Context(), toNode(stale)); err != nil {
			t.Fatal(err)
		}
		// An attempt takes node 1 and is refused by node 2. Its releases at node 1
		// are applied long after they were given up.
		c[0].set(func(_ context.Context, op faultstore.Op, apply func()) error {
			if op != faultstore.Release {
				apply()
				return nil
			}
			time.AfterFunc(3*time.Second, apply)
			time.Sleep(DefaultTimeout)
			return errFault
		})
		req := request("mine")
		if res, _ := s.Acquire(t.Context(), req); res.Granted {
			t.Fatal("one node was enough")
		}
		if _, err := direct.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: stale.Owner}); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			res, err := s.Acquire(t.Context(), req)
			time.Sleep(4 * time.Second)
			if err == nil && res.Granted && (c[0].holder(name) != "mine" || c[1].holder(name) != "mine") {
				t.Fatal("a hold was ended by a release that was sent before it")
			}
		}
		c[0].set(nil)
		if res, _ := s.Acquire(t.Context(), req); res.Granted { // node 1 confirms
			t.Error("a node in doubt has a vote")
		}
		time.Sleep(time.Second)
		grant(t, s, req)
	})
}

// While an attempt's part on a node is about to be given back, or may be, that a
// renewal succeeds there does not count.
func TestRenewDoesNotCountWhatIsGivenBack(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s, direct := c.client(t), c.connect()[0]
		stale := request("stale")
		if _, err := direct.Acquire(t.Context(), toNode(stale)); err != nil {
			t.Fatal(err)
		}
		c[1].set(slow(0, 300*time.Millisecond)) // grants at once, and answers late
		c[2].set(faultstore.Refuse)
		req := request("mine")
		if res, _ := s.Acquire(bounded(t, 100*time.Millisecond), req); res.Granted {
			t.Fatal("one node was enough")
		}
		c[1].set(nil)
		if outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: name, Owner: req.Owner, TTL: req.TTL}}); err != nil || outcomes[0] != olddriver.RenewLost {
			t.Errorf("%v, %v", outcomes, err)
		}
	})
}

// A repetition of the same owner through its store has the same token, even if a node has granted
// another one.
func TestTokenIsConstant(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		c[0].ahead = time.Hour
		s := c.client(t)
		req := request("mine")
		token := grant(t, s, req)
		if got := grant(t, s, req); got != token {
			t.Errorf("the token is %d, was %d", got, token)
		}
		if rec, _, _ := c.client(t).Lookup(t.Context(), name); rec.Token != token {
			t.Errorf("Lookup gives the token %d, want %d", rec.Token, token)
		}
	})
}
