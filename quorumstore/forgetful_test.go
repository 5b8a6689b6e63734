package quorumstore

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// The limit of every quorum: a hold need be on no more than a majority, so that
// one node which forgets it admits another owner. The tokens show the difference.
func TestForgetfulNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		c[2].set(faultstore.Refuse) // It is down for a while.
		first := grant(t, s, request("A"))
		synctest.Wait()
		c[2].set(nil)
		if res := acquire(t, s, request("B")); res.Granted {
			t.Fatalf("two of three nodes have granted A the lock, and B: %+v", res)
		}
		synctest.Wait() // What was granted of B's attempt is released.
		c[1].restart()
		if second := grant(t, s, request("B")); second <= first {
			t.Errorf("A's token is %d, and B's, which was granted later, %d", first, second)
		}
	})
}
