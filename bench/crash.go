//go:build unix

package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/stage"
)

// takeOverBound is for how long a take-over is waited for.
const takeOverBound = 5 * time.Second

// crash is how long a lock lies idle after its holder has crashed and its TTL
// is over, on a server that has other keys as well.
func crash(keys int) scenario {
	const ttl = time.Second
	sc := scenario{
		name:  "redis-crash",
		group: "Redis: waiting",
		title: "The holder crashes",
		about: fmt.Sprintf("The holder's process is killed while another waits. The time from the moment at which the key expires "+
			"(TTL %v) to that at which the waiter has the lock.", ttl),
		metrics: []result.Metric{
			{Key: "idle", Title: "median", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
			{Key: "idle", Title: "longest", Unit: result.Micros, Lower: true, Quantile: 1},
		},
		kinds:   waiting(),
		nodes:   1,
		ttl:     ttl,
		measure: func(s *scene, k contend.Kind) (result.Sample, error) { return s.takeOver(k, keys) },
	}
	if keys > 0 {
		sc.name += "-busy"
		sc.title += ", on a server with other keys"
		sc.about = fmt.Sprintf("As above, with %d other keys that have a TTL: Redis then takes its time to notice that a key has "+
			"expired that nobody asks for. It is not waited for longer than %v: that figure means that the waiter was still waiting.", keys, takeOverBound)
	}
	return sc
}

func (s *scene) takeOver(k contend.Kind, keys int) (result.Sample, error) {
	s.fill(keys)
	var idle time.Duration
	err := s.peers(k, 2, func(peers []*peer) error {
		holder, waiter := peers[0], peers[1]
		if _, err := holder.acquire("job"); err != nil {
			return err
		}
		got := make(chan time.Duration, 1)
		go func() {
			if at, err := waiter.acquire("job"); err == nil {
				got <- at
			}
		}()
		time.Sleep(200 * time.Millisecond) // It settles.
		if err := holder.kill(); err != nil {
			return err
		}
		expires := s.expiry(k.Keys("job"))
		select {
		case at := <-got:
			idle = at - expires
			_, err := waiter.release("job")
			return err
		case <-time.After(expires - stage.Now() + takeOverBound):
			idle = takeOverBound
			return waiter.kill()
		}
	})
	return result.Sample{Series: map[string][]float64{"idle": {max(0, float64(idle)/float64(time.Microsecond))}}}, err
}

// fill makes keys with a TTL of an hour.
func (s *scene) fill(keys int) {
	s.redis[0].Do("EVAL", `for i = 1, ARGV[1] do redis.call("SET", "other/" .. i, i, "EX", 3600) end`, "0", strconv.Itoa(keys))
}

// expiry returns when the last of the keys expires.
func (s *scene) expiry(keys []string) time.Duration {
	var last time.Duration
	for _, key := range keys {
		at := stage.Now()
		left, err := strconv.Atoi(s.redis[0].Do("PTTL", key))
		if err != nil {
			s.tb.Fatalf("the TTL of %s: %v", key, err)
		}
		last = max(last, at+time.Duration(left)*time.Millisecond)
	}
	return last
}
