package oldqueue_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/oldqueue"
)

// What a Queue keeps up to date is what it would find by a look at each entry: in a crowd, each
// verb has the same outcome as on a Queue that was restored from the same entries.
func TestCrowd(t *testing.T) {
	type entry = oldqueue.Entry[int]
	random := rand.New(rand.NewPCG(1, 2))
	var q oldqueue.Queue[int]
	c, now, most, expired := oldqueue.Counter{Clock: 1}, time.Duration(0), 0, 0
	for step := range 30_000 {
		var restored oldqueue.Queue[int]
		entries := 0
		for e := range q.All() {
			restored.Append(e)
			entries++
			if e.Until == now+1 {
				expired++
			}
		}
		most = max(most, entries)
		now++
		owner, ttl := fmt.Sprint("owner ", random.IntN(60)), time.Duration(1+random.IntN(100))
		limit := []int32{0, -1, -1, -1, 20, 20}[random.IntN(6)]
		req := oldqueue.Request[int]{
			Entry: entry{Owner: owner, Limit: limit, Data: step},
			TTL:   ttl, Queue: time.Duration(random.IntN(2) * random.IntN(50)), Claim: random.IntN(4) == 0,
		}
		verb, keep, token := random.IntN(100), time.Duration(random.IntN(2)*random.IntN(20)), int64(random.IntN(2))*c.Last
		apply := func(q *oldqueue.Queue[int], c *oldqueue.Counter) (outcome []any) {
			value := func(e *entry) string {
				if e == nil {
					return "none"
				}
				return fmt.Sprintln(e.Owner, e.Limit, e.Token, e.Tokens, e.Since, e.Until, e.Kept, e.Data)
			}
			var own *entry
			var notices []entry
			switch {
			case verb < 50:
				var err error
				own, notices, err = q.Acquire(req, now, c)
				outcome = append(outcome, err)
			case verb < 70:
				own, notices = q.Renew(owner, token, ttl, now, c)
			case verb < 98:
				var found bool
				found, notices = q.Release(owner, keep, now, c)
				outcome = append(outcome, found)
			default:
				var ended []entry
				ended, notices = q.Break(token, now, c)
				outcome = append(outcome, len(ended))
			}
			outcome = append(outcome, value(own), "notices")
			for _, e := range notices {
				outcome = append(outcome, value(&e))
			}
			outcome = append(outcome, "oldest", value(q.Oldest()), "first", value(q.First()), "all")
			for e := range q.All() {
				outcome = append(outcome, value(e))
			}
			return append(outcome, *c)
		}
		copied := c
		want, got := apply(&restored, &copied), apply(&q, &c)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d has the outcome\n%v, want\n%v", step, got, want)
		}
	}
	if most < 20 || expired < 300 {
		t.Errorf("there were %d entries at most, and %d expired", most, expired)
	}
}

// One more holder costs the same beside ten and beside ten thousand, whether it was the last to
// come or the first.
func TestCostInACrowd(t *testing.T) {
	cost := func(holders int) time.Duration {
		var q oldqueue.Queue[struct{}]
		c := oldqueue.Counter{Clock: 1}
		hold := func(i int) {
			e := oldqueue.Entry[struct{}]{Owner: fmt.Sprint("owner ", i), Limit: -1}
			if own, _, err := q.Acquire(oldqueue.Request[struct{}]{Entry: e, TTL: time.Hour}, 0, &c); own == nil {
				t.Fatal(err)
			}
		}
		for i := range holders {
			hold(i)
		}
		least := time.Hour // what other processes take of the time does not count
		for batch := range 200 {
			began := time.Now()
			for i := 10 * batch; i < 10*batch+10; i++ {
				owner := fmt.Sprint("owner ", i%holders)
				if own, _ := q.Renew(owner, 0, time.Hour, 0, &c); own == nil {
					t.Fatal("a hold is lost")
				}
				if found, _ := q.Release(owner, 0, 0, &c); !found {
					t.Fatal("a hold is not released")
				}
				hold(i % holders)
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	if few, many := cost(10), cost(10_000); many > 10*few {
		t.Errorf("ten holders of ten thousand are renewed, released and replaced in %v, and ten of ten in %v", many, few)
	}
}
