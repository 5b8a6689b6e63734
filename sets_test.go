package holdfast_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	workerCount = 8
	nameCount   = 10
	subsetSize  = 5

	// roundTimeout is how long a worker may take for one round before it counts as stuck.
	roundTimeout = time.Minute
)

// checkSets has workers acquire random subsets of a few names for d, spread over the clients,
// each subset in an order of its own. It fails t if any two workers have a name at the same
// time, if a worker is stuck, if tokens do not rise, and if a lock is held in the end. It
// returns how often a set was acquired.
func checkSets(t testing.TB, d time.Duration, clients ...*holdfast.Client) int64 {
	t.Helper()
	c := &setStress{t: t, prefix: "set/" + fmt.Sprint(rand.Uint32()) + "/"}
	var group sync.WaitGroup
	end := time.Now().Add(d)
	for i := range workerCount {
		client := clients[i%len(clients)]
		group.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				c.acquireSet(client)
			}
		})
	}
	group.Wait()
	for rec, err := range clients[0].List(context.Background(), c.prefix) {
		t.Errorf("left behind: %+v, %v", rec, err)
	}
	return c.rounds.Load()
}

type setStress struct {
	t       testing.TB
	prefix  string
	rounds  atomic.Int64
	holders [nameCount]atomic.Int64
	tokens  [nameCount]atomic.Int64
}

// acquireSet acquires one set, at random by waiting or by trying, and releases it.
func (c *setStress) acquireSet(client *holdfast.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), roundTimeout)
	defer cancel()
	chosen := rand.Perm(nameCount)[:subsetSize]
	wanted := make([]string, subsetSize)
	for i, n := range chosen {
		wanted[i] = fmt.Sprint(c.prefix, n)
	}
	acquire := client.AcquireAll
	if rand.N(4) == 0 {
		acquire = client.TryAcquireAll
	}
	set, err := acquire(ctx, wanted, nil)
	if ctx.Err() != nil {
		c.t.Errorf("a worker is stuck: %v", err)
	}
	if err != nil {
		return
	}
	c.rounds.Add(1)
	for _, n := range chosen {
		if in := c.holders[n].Add(1); in != 1 {
			c.t.Errorf("%d have name %d at once", in, n)
		}
		token := set.Tokens()[fmt.Sprint(c.prefix, n)]
		if before := c.tokens[n].Swap(token); token <= before && client.Guarantees().Fencing {
			c.t.Errorf("name %d: token %d after %d", n, token, before)
		}
	}
	if err := set.Err(); err != nil {
		c.t.Errorf("a set was lost: %v", err)
	}
	for _, n := range chosen {
		c.holders[n].Add(-1)
	}
	if err := set.Release(); err != nil {
		c.t.Errorf("Release: %v", err)
	}
}
