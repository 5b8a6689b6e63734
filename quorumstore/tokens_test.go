package quorumstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
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

// A node that grants fewer tokens lowers their number if it is in the majority.
func TestFewestTokensCount(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		nodes := stores(c.connect())
		nodes[1] = atMost{nodes[1], 7}
		s := New(nodes, &Options{CloseStores: true})
		t.Cleanup(func() { s.Close() })
		nodes[0].(*conn).Set(faultstore.Acquire, faultstore.Refuse)
		req := request("one")
		req.Tokens = driver.MaxTokens
		if res := acquire(t, s, req); res.Tokens != 7 {
			t.Errorf("%+v, want 7 tokens", res)
		}
	})
}

// atMost is a node that grants few tokens.
type atMost struct {
	driver.Store
	tokens int
}

func (s atMost) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	req.Tokens = min(req.Tokens, s.tokens)
	return s.Store.Acquire(ctx, req)
}

// The votes decide the number of tokens: those under another token do not count, nor do refusals.
func TestAgreedTokens(t *testing.T) {
	votes := []vote{
		{cast: true, granted: true, token: 10, tokens: 1024},
		{cast: true, granted: true, token: 10, tokens: 5},
		{cast: true, granted: true, token: 10}, // 0 is 1
		{cast: true, granted: true, token: 11, tokens: 3},
		{cast: true, tokens: 2},
	}
	for _, c := range []struct {
		votes []vote
		want  int
	}{
		{votes[:1], 1024},
		{votes[:2], 5},
		{votes[:3], 1},
		{append(votes[:2:2], votes[3:]...), 5},
	} {
		if got := (&tally{votes: c.votes}).agreedTokens(10); got != c.want {
			t.Errorf("%+v: %d tokens, want %d", c.votes, got, c.want)
		}
	}
}

// Goroutines of a Client pass a lease of a quorum on, too.
func TestLocalTurnsOfAQuorum(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c cluster) {
		conns := c.connect()
		locks := holdfast.New(join(t, conns), nil)
		defer locks.Close()
		var mu sync.Mutex
		var last int64
		var group sync.WaitGroup
		const holds = 50
		for range 8 {
			group.Go(func() {
				for range holds {
					lock, err := locks.Acquire(t.Context(), name, nil)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if lock.Token() <= last {
						t.Errorf("token %d after %d", lock.Token(), last)
					}
					last = lock.Token()
					mu.Unlock()
					if err := lock.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		// Votes without a winner are repeated, at random: 51 requests have been seen. Without turns
		// there is one for each hold at least.
		if n := conns[0].Calls(faultstore.Acquire); n > 8*holds/2 {
			t.Errorf("%d requests to a node for %d holds", n, 8*holds)
		}
	})
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
