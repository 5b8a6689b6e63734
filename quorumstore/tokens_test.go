package quorumstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// A grant of several tokens has as many as each node of the majority has granted, and whichever
// majority grants next, its token is above all of them.
func TestSeveralTokens(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		var last int64
		for down := range 10 { // two nodes at a time, all pairs
			first, second := pairOfNodes(down)
			conns[first].Set(faultstore.Acquire, faultstore.Refuse)
			conns[second].Set(faultstore.Acquire, faultstore.Refuse)
			req := request("one")
			req.Tokens = driver.MaxTokens
			res := acquire(t, s, req)
			if !res.Granted || res.Tokens != driver.MaxTokens || res.Token <= last {
				t.Errorf("without nodes %d and %d: %+v after token %d", first, second, res, last)
			}
			last = res.Token + int64(res.Tokens) - 1
			giveBack(t, s, req)
			conns[first].Set(faultstore.Acquire, nil)
			conns[second].Set(faultstore.Acquire, nil)
		}
	})
}

// pairOfNodes returns the nth pair of five nodes.
func pairOfNodes(n int) (first, second int) {
	for first = range 5 {
		for second = range first {
			if n == 0 {
				return first, second
			}
			n--
		}
	}
	return first, second
}

// A hold is renewed under its own token alone. The part of a node that has granted another token
// than the majority counts, also while another node is dead.
func TestRenewWithTokens(t *testing.T) {
	for _, learned := range []bool{false, true} { // that the tokens of node 3 are others
		inBubble(t, 3, func(t *testing.T, c cluster) {
			c[2].ahead = time.Minute
			s := c.client(t)
			req := request("mine")
			token := grant(t, s, req)
			synctest.Wait()
			if rec, _, err := c[2].memory().Lookup(t.Context(), name); err != nil || rec.Token <= token {
				t.Fatalf("node 3 has token %d, the hold %d, %v", rec.Token, token, err)
			}
			renew := func(token int64) driver.RenewOutcome {
				t.Helper()
				outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: name, Owner: req.Owner, TTL: req.TTL, Token: token}})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				return outcomes[0]
			}
			if got := renew(token + 1); got != driver.RenewLost {
				t.Errorf("Renew with another token is answered %d, want RenewLost", got)
			}
			c.holders(t, "mine", "mine", "mine")
			for i := 0; learned && i < 6; i++ { // longer than the TTL
				if renew(token) != driver.Renewed {
					t.Error("Renew with the token of the hold did not renew it")
				}
				time.Sleep(req.TTL / 4)
			}
			c[0].set(faultstore.Refuse)
			time.Sleep(req.TTL / 2)
			if renew(token) != driver.Renewed {
				t.Error("Renew by two nodes did not renew the hold")
			}
			time.Sleep(req.TTL - 1)
			if c[2].holder(name) != "mine" {
				t.Error("the part of node 3 was not renewed")
			}
		})
	}
}
