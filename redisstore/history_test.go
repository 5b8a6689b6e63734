//go:build unix

package redisstore

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue/queuetest"
	"github.com/holdfast-go/holdfast/internal/servers"
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
		s.Notify(func(string, string, int64) {}) // It listens to the mark before those that are tested.
		s.startListening(true)
		s.listener.notices.Expect(queuetest.Mark, queuetest.Mark, time.Hour)
		return queuetest.Settled(s, func(token int64) {
			client.Eval(context.Background(), "return redis.call('PUBLISH', ARGV[1], redis.sha1hex(ARGV[2]) .. ' ' .. ARGV[3])", nil,
				s.listener.channel, queuetest.Mark, token)
		})
	})
}
