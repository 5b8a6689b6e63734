package drivertest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var concurrencyCases = []testCase{
	{
		name:  "exclusion",
		claim: "Of many goroutines on several stores never two hold the same name at a time, and tokens rise in the order of the holds.",
		run: func(r *run) {
			stores := []*client{r.first, r.other(), r.other()}
			rooms := make([]room, 4)
			r.each(24, func(i int) error {
				for round := range 5 {
					n := (i + round) % len(rooms)
					if err := stores[i%len(stores)].visit(&rooms[n], fmt.Sprint("name/", n)); err != nil {
						return err
					}
				}
				return nil
			})
			visits := 0
			for i := range rooms {
				visits += rooms[i].visits
			}
			if visits != 24*5 {
				r.Errorf("of %d visits %d were counted", 24*5, visits)
			}
		},
	},
	{
		name:  "one-winner",
		claim: "Of attempts made at the same time on a free name exactly one is granted.",
		run: func(r *run) {
			stores := []*client{r.first, r.other()}
			for round := range 20 {
				r.oneWinner(stores, fmt.Sprint("name/", round))
			}
		},
	},
	{
		name:  "one-heir",
		claim: "Of attempts made at the same time on a name whose hold has run out exactly one is granted.",
		run: func(r *run) {
			stores := []*client{r.first, r.other()}
			const names = 10
			for i := range names {
				r.first.grant(fmt.Sprint("name/", i), short)
			}
			time.Sleep(short + 2*precision)
			for i := range names {
				r.oneWinner(stores, fmt.Sprint("name/", i))
			}
		},
	},
	{
		name:  "repetitions",
		claim: "An Acquire that is sent several times at once by one owner is granted each time, with one token.",
		run: func(r *run) {
			for round := range 10 {
				req := r.first.request(fmt.Sprint("name/", round), long)
				tokens := make([]int64, 8)
				r.each(len(tokens), func(i int) error {
					ctx, cancel := r.bound()
					defer cancel()
					res, err := r.first.Acquire(ctx, req)
					if err == nil && !res.Granted {
						err = errors.New("a repetition was refused")
					}
					tokens[i] = res.Token
					return err
				})
				for _, token := range tokens {
					if token != tokens[0] {
						r.Fatalf("one hold has the tokens %v", tokens)
					}
				}
			}
		},
	},
	{
		name:  "renew-and-release",
		claim: "A Renew that is overtaken by the Release of its hold does not bring the hold back.",
		run: func(r *run) {
			for round := range 20 {
				name := fmt.Sprint("name/", round)
				h := r.first.grant(name, long)
				r.each(4, func(i int) error {
					if i == 0 {
						return r.first.mustRelease(driver.AcquireRequest{Name: name, Owner: h.owner})
					}
					ctx, cancel := r.bound()
					defer cancel()
					_, err := r.first.Renew(ctx, []driver.RenewRequest{{Name: name, Owner: h.owner, TTL: long}})
					return err
				})
				r.first.free(name)
			}
		},
	},
	{
		name:  "guarded-resource",
		claim: "A resource that refuses lower tokens than it has seen admits no holder whose hold has run out once a successor was there.",
		needs: fencing,
		run: func(r *run) {
			other := r.other()
			var resource atomic.Int64
			write := func(h *hold) bool {
				if h.token < resource.Load() {
					return false
				}
				resource.Store(h.token)
				return true
			}
			for range 5 {
				late := r.first.grant("name", short)
				if !write(late) {
					r.Fatalf("the token %d of the holder is refused", late.token)
				}
				late.runOut()
				successor := other.grant("name", long)
				if !write(successor) {
					r.Errorf("the token %d of the holder is refused after %d", successor.token, late.token)
				}
				if write(late) {
					r.Errorf("the token %d of a lost hold is admitted after %d", late.token, successor.token)
				}
				successor.end()
			}
		},
	},
}

// A room admits one visitor at a time, if the lock is good. Its fields but
// inside are guarded by nothing else than the lock under test.
type room struct {
	inside atomic.Int32
	visits int
	last   int64
}

// visit takes the name, enters the room and leaves it again.
func (c *client) visit(room *room, name string) error {
	req := c.request(name, long)
	token, err := c.wait(req)
	if err != nil {
		return err
	}
	seen := c.enter(room, name, token)
	return errors.Join(seen, c.mustRelease(req))
}

func (c *client) enter(room *room, name string, token int64) error {
	defer room.inside.Add(-1)
	if n := room.inside.Add(1); n != 1 {
		return fmt.Errorf("%d are in the room of %q", n, name)
	}
	time.Sleep(50 * time.Microsecond) // Others have time to come in.
	room.visits++
	if c.r.guarantees.Fencing && token <= room.last {
		return fmt.Errorf("the token %d was granted after %d", token, room.last)
	}
	room.last = token
	return nil
}

// wait makes attempts until one is granted.
func (c *client) wait(req driver.AcquireRequest) (token int64, err error) {
	ctx, cancel := c.r.bound()
	defer cancel()
	for deadline := time.Now().Add(c.r.patience()); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		res, err := c.Acquire(ctx, req)
		if err != nil {
			return 0, fmt.Errorf("acquire of %q: %w", req.Name, err)
		}
		if res.Granted {
			return res.Token, nil
		}
	}
	return 0, fmt.Errorf("%q was not to be had in %v", req.Name, c.r.patience())
}

// oneWinner makes attempts by many owners at once.
func (r *run) oneWinner(stores []*client, name string) {
	r.Helper()
	var mu sync.Mutex
	granted := 0
	r.each(12, func(i int) error {
		ctx, cancel := r.bound()
		defer cancel()
		c := stores[i%len(stores)]
		res, err := c.Acquire(ctx, c.request(name, long))
		mu.Lock()
		defer mu.Unlock()
		if res.Granted {
			granted++
		}
		return err
	})
	if granted != 1 {
		r.Fatalf("of 12 attempts at once on %q %d were granted, want 1", name, granted)
	}
}
