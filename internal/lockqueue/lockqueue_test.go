package lockqueue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

func TestTokens(t *testing.T) {
	const clock = 1_000_000_000
	farthest := driver.MaxLead.Microseconds()
	for _, c := range []struct {
		name        string
		last, floor int64
		tokens      int
		token       int64
	}{
		{"the clock", 5, 5, 1, clock},
		{"none is requested", 5, 5, 0, clock},
		{"a larger block", 0, 0, driver.MaxTokens + 1, 0},
		{"the farthest floor", 0, clock + farthest, 1, clock + farthest},
		{"a floor too far", 0, clock + farthest + 1, 1, 0},
		{"the greatest token", driver.MaxToken - 1, 0, 1, driver.MaxToken},
		{"above the greatest token", driver.MaxToken, 0, 1, 0},
		{"the last block", driver.MaxToken - 3, 0, 3, driver.MaxToken - 2},
		{"a block above the greatest token", driver.MaxToken - 2, 0, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			counter := lockqueue.Counter{Last: c.last, Clock: clock}
			var q lockqueue.Queue[struct{}]
			req := &driver.Request{Owner: "A", TTL: 10, Floor: c.floor, Tokens: c.tokens}
			own, _, err := q.Acquire(req, struct{}{}, 0, &counter)
			if c.token == 0 {
				if own.Token != 0 || !errors.Is(err, driver.ErrInvalid) || q.Len() != 0 || counter.Last != c.last {
					t.Errorf("%+v, %v, last %d", own, err, counter.Last)
				}
				return
			}
			if err != nil || own.Token != c.token || counter.Last != c.token+int64(max(c.tokens, 1))-1 {
				t.Errorf("%+v, %v, last %d", own, err, counter.Last)
			}
		})
	}
}

// What a Queue keeps up to date is what it would find by a look at each entry: in a crowd, each
// verb has the outcome that it has on a Queue that was restored from the same entries.
func TestCrowd(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q lockqueue.Queue[int]
	c, now, most, expired := lockqueue.Counter{Clock: 1}, time.Duration(0), 0, 0
	for step := range 30_000 {
		var restored lockqueue.Queue[int]
		for _, e := range q.Entries() {
			restored.Restore(new(*e))
			if e.Until == now+1 {
				expired++
			}
		}
		most = max(most, q.Len())
		now++
		owner, ttl := fmt.Sprint("owner ", random.IntN(60)), time.Duration(1+random.IntN(100))
		req := &driver.Request{
			Owner: owner, Limit: []int{0, driver.Shared, driver.Shared, driver.Shared, 20, 20}[random.IntN(6)],
			TTL: ttl, Place: time.Duration(random.IntN(2) * random.IntN(50)),
		}
		verb, keep, token := random.IntN(100), time.Duration(random.IntN(2)*random.IntN(20)), int64(random.IntN(2))*c.Last
		apply := func(q *lockqueue.Queue[int], c *lockqueue.Counter) (outcome []any) {
			switch {
			case verb < 50:
				own, promoted, err := q.Acquire(req, step, now, c)
				outcome = append(outcome, own, promoted, err)
			case verb < 70:
				own, promoted := q.Renew(owner, token, ttl, now)
				outcome = append(outcome, own, promoted)
			case verb < 98:
				found, promoted := q.Release(owner, keep, now)
				outcome = append(outcome, found, promoted)
			default:
				ended, promoted := q.Break(token, now)
				outcome = append(outcome, ended, promoted)
			}
			outcome = append(outcome, len(q.Holds()), q.Waiting(), *c)
			for _, e := range q.Entries() {
				outcome = append(outcome, *e)
			}
			return outcome
		}
		copied := c
		want, got := apply(&restored, &copied), apply(&q, &c)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d has the outcome\n%v, want\n%v", step, got, want)
		}
		longest, length, least := 0, 0, driver.Shared
		for _, e := range q.Entries() {
			length, least = length+1, min(least, e.Limit)
			if length <= least {
				longest = length
			}
		}
		if got := len(q.Holds()); got != longest {
			t.Fatalf("step %d leaves %d holds, want %d", step, got, longest)
		}
	}
	if most < 20 || expired < 300 {
		t.Errorf("there were %d entries at most, and %d expired", most, expired)
	}
}
