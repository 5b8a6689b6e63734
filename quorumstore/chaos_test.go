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

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// Clients take a name from servers that delay, drop and forget to answer, hang
// for a while and have clocks of their own; they work longer than they may, and
// leave without a release. Never do two have the name at a time, by the deadlines
// that package holdfast reckons, and tokens rise strictly.
func TestExclusionUnderFaults(t *testing.T) {
	for seed := range uint64(number(t, "TEST_ROUNDS", 3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, 3+2*int(seed%2), func(t *testing.T, c cluster) {
				w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), tokens: map[int64]bool{}}
				for _, s := range c {
					s.ahead = time.Duration(w.upTo(3000)) * time.Millisecond
					s.set(w.fault(s))
				}
				var group sync.WaitGroup
				for i := range 4 {
					s := c.client(t)
					group.Go(func() { w.client(s, i) })
				}
				group.Wait()
				if w.grants < 50 {
					t.Errorf("only %d grants", w.grants)
				}
				for _, s := range c {
					s.set(nil)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				insist(t, c.client(t), "after all")
			})
		})
	}
}

// A world is what the clients of a test share.
type world struct {
	t *testing.T

	mu     sync.Mutex
	rng    *rand.Rand
	holder *tenure
	tokens map[int64]bool
	last   int64 // the greatest token granted so far
	grants int
}

// A tenure is the time in which a client may rely on a hold.
type tenure struct {
	who      string
	deadline time.Time
}

func (w *world) upTo(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

var errFault = errors.New("connection lost")

// fault makes a server's requests meet with anything.
func (w *world) fault(*server) faultstore.Fault {
	var mu sync.Mutex
	var hungUntil time.Time
	return func(_ context.Context, _ faultstore.Op, apply func()) error {
		mu.Lock()
		if w.upTo(400) == 0 {
			hungUntil = time.Now().Add(time.Duration(w.upTo(3000)) * time.Millisecond)
		}
		pause := max(time.Until(hungUntil), 0)
		mu.Unlock()
		time.Sleep(pause + time.Duration(w.upTo(6000))*time.Microsecond)
		switch w.upTo(40) {
		case 0: // lost on the way
			time.Sleep(DefaultTimeout + 100*time.Millisecond)
			return context.DeadlineExceeded
		case 1: // refused
			return faultstore.ErrRefused
		case 2: // the answer is lost
			apply()
			return errFault
		case 3: // late, and the answer is not waited for
			time.AfterFunc(time.Duration(w.upTo(400))*time.Millisecond, apply)
			return errFault
		}
		apply()
		time.Sleep(time.Duration(w.upTo(6000)) * time.Microsecond)
		return nil
	}
}

const chaosTTL = time.Second

// client takes the name again and again. It releases the owner of each attempt, for the most part.
func (w *world) client(s *Store, number int) {
	for i := range 1200 {
		req := request(fmt.Sprintf("client-%d-%d", number, i))
		req.TTL = chaosTTL
		w.mu.Lock()
		above := w.last
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), chaosTTL)
		sent := time.Now()
		res, err := s.Acquire(ctx, req)
		cancel()
		if deadline := sent.Add(driver.Validity(req.TTL)); res.Granted && time.Now().Before(deadline) {
			w.work(s, req, w.begin(req, deadline, res.Token, above))
			if w.upTo(10) == 0 {
				continue // it is gone without a release
			}
		}
		if res.Granted || err != nil && !driver.IsNotApplied(err) {
			ctx, cancel = context.WithTimeout(context.Background(), time.Second)
			_, _ = s.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			cancel()
		}
		time.Sleep(time.Duration(1+w.upTo(60)) * time.Millisecond)
	}
}

// begin checks that nobody has the name and that the token is new.
func (w *world) begin(req driver.Request, deadline time.Time, token, above int64) *tenure {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.holder; h != nil && time.Now().Before(h.deadline) {
		w.t.Errorf("%s was granted the name while %s had it for another %v", req.Holder, h.who, time.Until(h.deadline))
	}
	if w.tokens[token] || token <= above {
		w.t.Errorf("%s was granted token %d, having begun after %d (granted before: %v)", req.Holder, token, above, w.tokens[token])
	}
	w.tokens[token] = true
	w.last = max(w.last, token)
	w.grants++
	w.holder = &tenure{who: req.Holder, deadline: deadline}
	return w.holder
}

// work goes on for a while, with renewals, perhaps beyond the deadline.
func (w *world) work(s *Store, req driver.Request, mine *tenure) {
	for range w.upTo(6) {
		time.Sleep(time.Duration(w.upTo(400)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), chaosTTL/4)
		sent := time.Now()
		outcomes, _ := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
		cancel()
		w.mu.Lock()
		if len(outcomes) == 1 && outcomes[0].State == driver.Held && time.Now().Before(mine.deadline) {
			mine.deadline = sent.Add(driver.Validity(req.TTL))
		}
		lost := len(outcomes) == 1 && outcomes[0].State == driver.Lost
		w.mu.Unlock()
		if lost {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	mine.deadline = time.Now() // it does not rely on the hold any more
}
