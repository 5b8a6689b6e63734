package quorumstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

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
			if records, err := c[2].memory().Lookup(t.Context(), name); err != nil || len(records) != 1 || records[0].Token <= token {
				t.Fatalf("node 3 has %v, the hold the token %d, %v", records, token, err)
			}
			renew := func(token int64) olddriver.RenewOutcome {
				t.Helper()
				outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: name, Owner: req.Owner, TTL: req.TTL, Token: token}})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				return outcomes[0]
			}
			if got := renew(token + 1); got != olddriver.RenewLost {
				t.Errorf("Renew with another token is answered %d, want RenewLost", got)
			}
			c.holders(t, "mine", "mine", "mine")
			for i := 0; learned && i < 6; i++ { // longer than the TTL
				if renew(token) != olddriver.Renewed {
					t.Error("Renew with the token of the hold did not renew it")
				}
				time.Sleep(req.TTL / 4)
			}
			c[0].set(faultstore.Refuse)
			time.Sleep(req.TTL / 2)
			if renew(token) != olddriver.Renewed {
				t.Error("Renew by two nodes did not renew the hold")
			}
			time.Sleep(req.TTL - 1)
			if c[2].holder(name) != "mine" {
				t.Error("the part of node 3 was not renewed")
			}
		})
	}
}
