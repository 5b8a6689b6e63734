package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// The clocks of five nodes are up to ten seconds apart and are set at times, requests and answers
// take their time, and holders are paused beyond their TTL and come back. Tokens are unique and
// rise in the order of the grants, and once a client has learnt how far the clocks are ahead, most
// grants take one round trip.
func TestTokensWithClocksApart(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c cluster) {
		for i, s := range c {
			s.ahead = time.Duration(i) * 2500 * time.Millisecond
			s.set(jitter(2 * time.Millisecond))
		}
		l := &ledger{t: t, left: 5000, seen: map[int64]bool{}}
		var group sync.WaitGroup
		for i := range 4 {
			s := c.client(t)
			group.Go(func() { l.client(s, uint64(i)) })
		}
		group.Go(func() {
			for more := true; more; _, more = l.greatest() {
				time.Sleep(20 * time.Second)
				c[rand.IntN(len(c))].step(rand.N(10 * time.Second))
			}
		})
		group.Wait()
		synctest.Wait()
		if l.again > l.granted/10 {
			t.Errorf("of %d grants %d needed another round trip", l.granted, l.again)
		}
	})
}

// A ledger has the tokens of all grants.
type ledger struct {
	t *testing.T

	mu      sync.Mutex
	left    int // grants still to come
	granted int
	again   int // grants that needed another attempt
	last    int64
	seen    map[int64]bool
}

// greatest returns the greatest token so far, and whether there is to be more.
func (l *ledger) greatest() (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.left > 0
}

// add notes a token that was requested when above was the greatest.
func (l *ledger) add(token, above int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[token] || token <= above {
		l.t.Errorf("token %d was granted after %d (granted before: %v)", token, above, l.seen[token])
	}
	l.seen[token] = true
	l.last = max(l.last, token)
	l.left--
	l.granted++
}

// client takes the name again and again. A tenth of its holds it sleeps over.
func (l *ledger) client(s *Store, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	for n := 0; ; n++ {
		above, more := l.greatest()
		if !more {
			return
		}
		req := request(fmt.Sprint("client ", seed))
		req.TTL = time.Second
		res, err := s.Acquire(context.Background(), req)
		var again *driver.RetryError
		if errors.As(err, &again) { // after a vote without a winner
			l.mu.Lock()
			l.again++
			l.mu.Unlock()
			time.Sleep(again.After)
			continue
		}
		if err != nil {
			l.t.Errorf("Acquire: %v", err)
			return
		}
		if !res.Granted {
			time.Sleep(res.Held.Remaining + time.Duration(rng.IntN(50))*time.Millisecond)
			continue
		}
		l.add(res.Token, above)
		paused := rng.IntN(10) == 0
		if paused {
			time.Sleep(req.TTL + time.Duration(rng.IntN(1000))*time.Millisecond)
		}
		ours, err := s.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		if err != nil || ours == paused {
			l.t.Errorf("Release: %v, %v of a holder that was paused beyond its TTL: %v", ours, err, paused)
		}
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
	}
}

// The clock of one node is ahead, and another node dies. A keep of a hold whose tokens differ is
// found, and a later hold goes on.
func TestClockAheadBesideADeadNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		c[2].step(2 * time.Second)
		for _, node := range c {
			node.set(jitter(time.Millisecond))
		}
		locks, other := holdfast.New(c.client(t), nil), holdfast.New(c.client(t), nil)
		for i := range 2 {
			lock, err := locks.Acquire(t.Context(), name, nil)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // The last node answers.
			c[0].set(faultstore.Refuse)
			time.Sleep(time.Duration(i) * 5 * time.Minute)
			if err := errors.Join(lock.Err(), lock.ReleaseKeep(time.Hour)); err != nil {
				t.Error(err)
			}
			c[0].set(jitter(time.Millisecond))
			time.Sleep(time.Minute)
			if _, err := other.TryAcquire(t.Context(), name, nil); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("a name that is kept: %v", err)
			}
			time.Sleep(time.Hour)
		}
		_ = errors.Join(locks.Close(), other.Close())
	})
}
