//go:build unix

package torture_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// redlock is a Redlock of the usual kind, which may have a mistake: an answer that
// comes when its round is over counts for the next round of that owner, although
// a release was sent to the node meanwhile.
type redlock struct {
	driver.Store // none: it has what torture needs
	nodes        []*redis.Client

	counts  bool // whether it has the mistake
	running sync.WaitGroup

	mu     sync.Mutex
	late   map[string]int    // votes, by owner
	rounds int               // so far
	values map[string]string // of the round in which an owner was granted the lock
}

// roundBound is how long a round waits for votes.
const roundBound = 30 * time.Millisecond

var (
	takeScript    = redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`)
	renewScript   = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`)
	releaseScript = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
)

func openRedlock(counts bool) func(context.Context, []string) (driver.Store, error) {
	return func(_ context.Context, urls []string) (driver.Store, error) { return newRedlock(urls, counts) }
}

func newRedlock(urls []string, counts bool) (*redlock, error) {
	s := &redlock{counts: counts, late: map[string]int{}, values: map[string]string{}}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, redis.NewClient(&redis.Options{Addr: u.Host, MaxRetries: -1, PoolSize: 100}))
	}
	return s, nil
}

// vote runs a script on all nodes, and returns the number of nodes that granted it before the round
// was over. It calls late for the others.
func (s *redlock) vote(script *redis.Script, late func(), name string, args ...any) int {
	votes := make(chan bool, len(s.nodes))
	over := make(chan struct{})
	for _, node := range s.nodes {
		s.running.Go(func() {
			yes, err := script.Run(context.Background(), node, []string{name}, args...).Int()
			select {
			case <-over:
				if yes == 1 && err == nil {
					late()
				}
			default:
				votes <- yes == 1 && err == nil
			}
		})
	}
	defer close(over)
	count := 0
	timer := time.NewTimer(roundBound)
	defer timer.Stop()
	for range s.nodes {
		select {
		case yes := <-votes:
			if yes {
				count++
			}
		case <-timer.C:
			return count
		}
	}
	return count
}

func (s *redlock) has(votes int) bool { return votes > len(s.nodes)/2 }

func (s *redlock) Acquire(_ context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	late := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.counts {
			s.late[req.Owner]++
		}
	}
	// Each round has a value of its own, so that a release of the round before that
	// arrives late does not take a vote of this one away.
	s.mu.Lock()
	s.rounds++
	value := fmt.Sprintf("%s/%d", req.Owner, s.rounds)
	s.mu.Unlock()
	votes := s.vote(takeScript, late, req.Name, value, req.TTL.Milliseconds())
	s.mu.Lock()
	votes += s.late[req.Owner]
	granted := s.has(votes)
	if granted {
		s.values[req.Owner] = value
	}
	s.mu.Unlock()
	if !granted {
		s.vote(releaseScript, func() {}, req.Name, value)
	}
	return driver.AcquireResult{Granted: granted}, nil
}

func (s *redlock) valueOf(owner string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[owner]
}

func (s *redlock) Renew(_ context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	outcomes := make([]driver.RenewOutcome, len(reqs))
	for i, req := range reqs {
		if s.has(s.vote(renewScript, func() {}, req.Name, s.valueOf(req.Owner), req.TTL.Milliseconds())) {
			outcomes[i] = driver.Renewed
		}
	}
	return outcomes, nil
}

func (s *redlock) Release(_ context.Context, req driver.ReleaseRequest) (bool, error) {
	return s.has(s.vote(releaseScript, func() {}, req.Name, s.valueOf(req.Owner))), nil
}

func (s *redlock) Lookup(context.Context, string) (driver.Record, bool, error) {
	return driver.Record{}, false, driver.ErrUnsupported
}

func (s *redlock) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store: "redlock", Scope: driver.ScopeNetwork,
		HolderCrash: driver.RecoveryTTL, Restart: driver.FateForgotten, Failover: driver.FateForgotten,
	}
}

func (s *redlock) Close() error {
	for _, node := range s.nodes {
		_ = node.Close() // what runs fails now
	}
	s.running.Wait()
	return nil
}
