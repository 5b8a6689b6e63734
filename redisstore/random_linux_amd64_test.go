package redisstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// The store does what package lockqueue does in histories at random, in which the clock of the
// server is set forward by an hour after each two calls, so that entries end. TEST_ROUNDS is how
// many thousands of them.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("TEST_ROUNDS"))
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	all := make([]*history, 1000*max(rounds, 1))
	for seed := range all {
		all[seed] = &history{
			t: t, s: s, Rand: rand.New(rand.NewPCG(uint64(seed), 0)), name: fmt.Sprint("history/", seed),
			tokens: map[int64]int{0: 0}, numbers: map[int64]int{0: 0},
		}
	}
	for hour := range 10 {
		now := time.Duration(hour) * time.Hour
		servers.SetWallClock(t, server.PID(), now)
		var group sync.WaitGroup
		for part := range slices.Chunk(all, len(all)/100) {
			group.Go(func() {
				for _, h := range part {
					h.call(now)
					h.call(now)
				}
			})
		}
		group.Wait()
	}
	failures := 0
	for seed, h := range all {
		if !slices.Equal(h.lines, h.wanted) && failures < 3 {
			failures++
			t.Errorf("seed %d:\nRedis\n%s\nlockqueue\n%s", seed, strings.Join(h.lines, "\n"), strings.Join(h.wanted, "\n"))
		}
	}
}

// A history is calls on a name of its own, with the results of the store and those of lockqueue. A
// token is shown as its entry's number.
type history struct {
	t *testing.T
	s *Store
	*rand.Rand
	name            string
	owners, entries int
	queue           lockqueue.Queue[string]
	counter         lockqueue.Counter
	tokens, numbers map[int64]int // of the store and of lockqueue
	lines, wanted   []string
}

// tokenOf returns the token of an entry, or 0.
func tokenOf(tokens map[int64]int, entry int) int64 {
	for token, number := range tokens {
		if number == entry {
			return token
		}
	}
	return 0
}

// hours returns a time that no change of the clock meets.
func (h *history) hours(most int) time.Duration {
	return time.Duration(h.IntN(most))*time.Hour + 30*time.Minute
}

// show shows the holds in both forms alike.
func (h *history) show(records []driver.Record, holds []*lockqueue.Entry[string], waiting int, now time.Duration) (got, want string) {
	const form = " [%d %s limit %d kept %v waiting %d until %v]"
	for _, rec := range records {
		got += fmt.Sprintf(form, h.tokens[rec.Token], rec.Holder, max(rec.Limit, 1), rec.Kept, rec.Waiting, rec.Remaining.Round(30*time.Minute))
	}
	for _, e := range holds {
		holder := e.Data
		if e.Kept {
			holder = ""
		}
		want += fmt.Sprintf(form, h.numbers[e.Token], holder, e.Limit, e.Kept, waiting, e.Until-now)
	}
	return got, want
}

func (h *history) call(now time.Duration) {
	ctx, call, entry := h.t.Context(), h.IntN(11), 1+h.IntN(h.owners+1)
	if call < 4 && h.IntN(5) > 0 {
		entry = h.owners + 1
	}
	owner, what, got, want := fmt.Sprint("owner ", entry), "", "", ""
	switch {
	case call < 4:
		req := driver.Request{Name: h.name, Owner: owner, Holder: fmt.Sprint("h", entry), TTL: h.hours(5), Limit: []int{1, 1, 2, 3, driver.Shared}[h.IntN(5)]}
		if h.IntN(3) > 0 {
			req.Place = h.hours(4)
		}
		if req.Limit == 1 {
			req.Tokens = 1 + h.IntN(8)
		}
		what = fmt.Sprint("acquire ", req.Limit, " ", req.Tokens, " ", req.TTL, " ", req.Place)
		res, err := h.s.Acquire(ctx, req)
		own, _, wantErr := h.queue.Acquire(&req, req.Holder, now, &h.counter)
		if res.Token > 0 && own.Token > 0 {
			h.entries++
			h.tokens[res.Token], h.numbers[own.Token] = h.entries, h.entries
		}
		h.owners = max(h.owners, entry)
		got = fmt.Sprint(res.Granted, res.Waiting, h.tokens[res.Token], err != nil)
		want = fmt.Sprint(own.State == driver.Held, own.State == driver.Waiting, h.numbers[own.Token], wantErr != nil)
	case call < 7:
		of, ttl := h.IntN(h.entries+1), h.hours(5)
		what = fmt.Sprint("renew ", of, " ", ttl)
		entries, err := h.s.Renew(ctx, []driver.RenewRequest{{Name: h.name, Owner: owner, Token: tokenOf(h.tokens, of), TTL: ttl}})
		own, _ := h.queue.Renew(owner, tokenOf(h.numbers, of), ttl, now)
		got, want = fmt.Sprint(entries[0].State, h.tokens[entries[0].Token], err), fmt.Sprint(own.State, h.numbers[own.Token], nil)
	case call < 9:
		keep := time.Duration(h.IntN(3)/2) * h.hours(4)
		what = fmt.Sprint("release ", keep)
		ended, err := h.s.Release(ctx, driver.ReleaseRequest{Name: h.name, Owner: owner, Keep: keep})
		wanted, _ := h.queue.Release(owner, keep, now)
		got, want = fmt.Sprint(ended, err), fmt.Sprint(wanted, nil)
	case call == 9:
		of := h.IntN(h.entries + 1)
		what = fmt.Sprint("break ", of)
		records, err := h.s.Break(ctx, h.name, tokenOf(h.tokens, of))
		h.queue.Settle(now)
		waiting := h.queue.Waiting()
		ended, _ := h.queue.Break(tokenOf(h.numbers, of), now)
		var holds []*lockqueue.Entry[string]
		for i := range ended {
			holds = append(holds, &ended[i])
		}
		got, want = h.show(records, holds, waiting, now)
		got += fmt.Sprint(err)
		want += fmt.Sprint(nil)
	default:
		what = "lookup"
		records, err := h.s.Lookup(ctx, h.name)
		h.queue.Settle(now)
		got, want = h.show(records, h.queue.Holds(), h.queue.Waiting(), now)
		got += fmt.Sprint(err)
		want += fmt.Sprint(nil)
	}
	prefix := fmt.Sprint(now, " ", owner, " ", what, ": ")
	h.lines, h.wanted = append(h.lines, prefix+got), append(h.wanted, prefix+want)
}
