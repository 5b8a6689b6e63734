//go:build unix

package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue/queuetest"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/memstore"
)

// The store keeps the rule of the queue.
func TestHistories(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	together := func(t *testing.T, play func(*testing.T)) {
		t.Parallel()
		play(t)
	}
	queuetest.Run(t, together, 400*time.Millisecond, func(tb testing.TB) driver.Notifier {
		client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
		s := New(client, &Options{Prefix: rand.Text() + ":"})
		tb.Cleanup(func() { _ = s.Close(); _ = client.Close() })
		s.startListening(true)
		s.listener.expect(queuetest.Mark, queuetest.Mark, time.Hour)
		return queuetest.Settled(s, func(token int64) {
			client.Eval(context.Background(), "return redis.call('PUBLISH', ARGV[1], redis.sha1hex(ARGV[2]) .. ' ' .. ARGV[3])", nil,
				s.listener.channel, queuetest.Mark, token)
		})
	})
}

// The store does what package lockqueue does, on which memstore runs, in histories at random.
// TEST_ROUNDS is how many thousands of them.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("TEST_ROUNDS"))
	server := servers.StartRedis(t)
	both := [2]driver.Store{open(t, server.Addr, nil), memstore.New()}
	var group sync.WaitGroup
	for worker := range 100 {
		group.Go(func() {
			for i := range 10 * max(rounds, 1) {
				seed := uint64(worker*1_000_000 + i)
				var lines [2][]string
				for k, s := range both {
					lines[k] = playAtRandom(s, seed)
				}
				if !slices.Equal(lines[0], lines[1]) {
					t.Errorf("seed %d:\nRedis\n%s\nlockqueue\n%s", seed, strings.Join(lines[0], "\n"), strings.Join(lines[1], "\n"))
					return
				}
			}
		})
	}
	group.Wait()
}

// playAtRandom makes calls on a name of its own, and returns them with their results. A token is
// shown as its entry's number.
func playAtRandom(s driver.Store, seed uint64) (lines []string) {
	ctx, r := context.Background(), mathrand.New(mathrand.NewPCG(seed, 0))
	name, owners, tokens := fmt.Sprint("history/", seed), 0, map[int64]int{0: 0}
	tokenOf := func(entry int) int64 {
		for token, number := range tokens {
			if number == entry {
				return token
			}
		}
		return 0
	}
	show := func(records []driver.Record) string {
		text := ""
		for _, rec := range records {
			text += fmt.Sprintf(" [%d %s limit %d kept %v waiting %d]", tokens[rec.Token], rec.Holder, max(rec.Limit, 1), rec.Kept, rec.Waiting)
		}
		return text
	}
	for range 12 {
		call, entry := r.IntN(10), 1+r.IntN(owners+1)
		owner := fmt.Sprint("owner ", entry)
		var result string
		switch {
		case call < 4:
			entry, owner = owners+1, fmt.Sprint("owner ", owners+1)
			req := driver.Request{Name: name, Owner: owner, Holder: fmt.Sprint("h", entry), TTL: time.Hour, Limit: []int{1, 1, 2, 3, driver.Shared}[r.IntN(5)]}
			req.Place = time.Duration(r.IntN(2)) * time.Hour
			if req.Limit == 1 {
				req.Tokens = 1 + r.IntN(8)
			}
			res, err := s.Acquire(ctx, req)
			if owners = entry; res.Token > 0 {
				tokens[res.Token] = entry
			}
			result = fmt.Sprint("acquire ", req.Limit, req.Tokens, req.Place, ": ", res.Granted, res.Waiting, tokens[res.Token], tokens[res.Held.Token], err != nil)
		case call < 6:
			token := tokenOf(r.IntN(owners + 1))
			entries, err := s.Renew(ctx, []driver.RenewRequest{{Name: name, Owner: owner, Token: token, TTL: time.Hour}})
			result = fmt.Sprint("renew ", tokens[token], ": ", entries[0].State, tokens[entries[0].Token], err)
		case call < 8:
			req := driver.ReleaseRequest{Name: name, Owner: owner, Keep: time.Duration(r.IntN(4)/3) * time.Hour}
			ended, err := s.Release(ctx, req)
			result = fmt.Sprint("release ", req.Keep, ": ", ended, err)
		case call == 8:
			token := tokenOf(r.IntN(owners + 1))
			records, err := s.Break(ctx, name, token)
			result = fmt.Sprint("break ", tokens[token], ":", show(records), err)
		default:
			records, err := s.Lookup(ctx, name)
			result = fmt.Sprint("lookup:", show(records), err)
		}
		lines = append(lines, fmt.Sprint(owner, " ", result))
	}
	return lines
}
