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
		claim: "Two goroutines never hold the same name at a time, whichever stores they use, and tokens rise in the order of the holds.",
		run: func(r *caseRun) {
			stores := []*client{r.first, r.otherStore(), r.otherStore()}
			sections := make([]criticalSection, 4)
			r.runParallel(24, func(i int) error {
				for round := range 5 {
					n := (i + round) % len(sections)
					if err := stores[i%len(stores)].runExclusively(&sections[n], fmt.Sprint("name/", n)); err != nil {
						return err
					}
				}
				return nil
			})
			entries := 0
			for i := range sections {
				entries += sections[i].entries
			}
			if entries != 24*5 {
				r.Errorf("of %d visits %d were counted", 24*5, entries)
			}
		},
	},
	{
		name:  "one-winner",
		claim: "Of attempts made at the same time on a free name exactly one is granted.",
		run: func(r *caseRun) {
			stores := []*client{r.first, r.otherStore()}
			for round := range 20 {
				r.expectOneGrant(stores, fmt.Sprint("name/", round))
			}
		},
	},
	{
		name:  "one-heir",
		claim: "Of attempts made at the same time on a name with an expired hold exactly one is granted.",
		run: func(r *caseRun) {
			stores := []*client{r.first, r.otherStore()}
			const names = 10
			for i := range names {
				r.first.acquireFree(fmt.Sprint("name/", i), short)
			}
			r.sleepPast(short)
			for i := range names {
				r.expectOneGrant(stores, fmt.Sprint("name/", i))
			}
		},
	},
	{
		name:  "repetitions",
		claim: "An Acquire that is sent several times at once by one owner is granted each time, with one token.",
		run: func(r *caseRun) {
			for round := range 10 {
				req := r.first.newRequest(fmt.Sprint("name/", round), long)
				tokens := make([]int64, 8)
				r.runParallel(len(tokens), func(i int) error {
					ctx, cancel := r.callContext()
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
		claim: "A Renew that is overtaken by the Release of its hold does not restore the hold.",
		run: func(r *caseRun) {
			for round := range 20 {
				name := fmt.Sprint("name/", round)
				h := r.first.acquireFree(name, long)
				r.runParallel(4, func(i int) error {
					if i == 0 {
						return r.first.releaseOrError(name, h.owner)
					}
					ctx, cancel := r.callContext()
					defer cancel()
					_, err := r.first.Renew(ctx, []driver.RenewRequest{{Name: name, Owner: h.owner, TTL: long}})
					return err
				})
				r.first.expectFree(name)
			}
		},
	},
}

// A criticalSection is entered by one goroutine at a time, if the lock is good. Only
// the lock under test guards its fields, except inside.
type criticalSection struct {
	inside    atomic.Int32
	entries   int
	lastToken int64
}

// runExclusively acquires the name, runs the critical section and releases the name.
func (c *client) runExclusively(section *criticalSection, name string) error {
	req := c.newRequest(name, long)
	token, err := c.waitForGrant(req)
	if err != nil {
		return err
	}
	sectionErr := c.enterSection(section, name, token)
	return errors.Join(sectionErr, c.releaseOrError(name, req.Owner))
}

// enterSection checks that no other goroutine is in the section, and that the tokens
// rise.
func (c *client) enterSection(section *criticalSection, name string, token int64) error {
	defer section.inside.Add(-1)
	if n := section.inside.Add(1); n != 1 {
		return fmt.Errorf("%d are in the room of %q", n, name)
	}
	time.Sleep(50 * time.Microsecond) // Other goroutines have time to enter.
	section.entries++
	if c.run.guarantees.Fencing && token <= section.lastToken {
		return fmt.Errorf("the token %d was granted after %d", token, section.lastToken)
	}
	section.lastToken = token
	return nil
}

// waitForGrant makes attempts until one is granted.
func (c *client) waitForGrant(req driver.AcquireRequest) (token int64, err error) {
	ctx, cancel := c.run.callContext()
	defer cancel()
	for deadline := time.Now().Add(c.run.grantTimeout()); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		res, err := c.Acquire(ctx, req)
		if err != nil {
			return 0, fmt.Errorf("acquire of %q: %w", req.Name, err)
		}
		if res.Granted {
			return res.Token, nil
		}
	}
	return 0, fmt.Errorf("%q was not to be had in %v", req.Name, c.run.grantTimeout())
}

// expectOneGrant checks that of attempts by many owners at once one is granted.
func (r *caseRun) expectOneGrant(stores []*client, name string) {
	r.Helper()
	var mu sync.Mutex
	granted := 0
	r.runParallel(12, func(i int) error {
		ctx, cancel := r.callContext()
		defer cancel()
		c := stores[i%len(stores)]
		res, err := c.Acquire(ctx, c.newRequest(name, long))
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
