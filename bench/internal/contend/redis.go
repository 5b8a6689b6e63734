//go:build unix

package contend

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// poolSize is the number of connections for those who use one for each call
// under way. More made none of them faster on the machines tried.
const poolSize = 64

// newRedis returns a client of go-redis, as every contender uses it that is
// handed one. With ContextTimeoutEnabled it obeys the time-outs that the
// libraries give it; without, a server that hangs costs 3 s each time.
func newRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: poolSize, ContextTimeoutEnabled: true})
}

// Redis lists the libraries for one Redis server, set up as well as they can be.
func Redis() []Kind {
	return []Kind{
		holdfastRedis(),
		rueidislock("rueidislock", "KeyMajority 1, NoLoopTracking, TryNextAfter 1 s: one key, no notifications of its own changes, and no short time-out", tuned),
		redislockEvery("redislock", "go-redis; waiters try every 100 ms (LinearBackoff, as in its README)", 100*time.Millisecond),
		redsyncGoredis("redsync", "go-redis; waiters try every 50 to 250 ms (its default), without end"),
		redsyncRueidis("redsync on rueidis", "its adapter for rueidis, which pipelines; waiters as above"),
	}
}

// RedisDefaults lists those whose defaults behave otherwise.
func RedisDefaults() []Kind {
	return []Kind{
		holdfastPatient(),
		rueidislock("rueidislock, defaults", "KeyMajority 2: three keys for each lock", func(*rueidisOptions) {}),
	}
}

// RedisPolling lists those who wait by trying again, made to do it often.
func RedisPolling() []Kind {
	return []Kind{
		redislockEvery("redislock, every 5 ms", "go-redis; waiters try every 5 ms (LinearBackoff)", 5*time.Millisecond),
	}
}
