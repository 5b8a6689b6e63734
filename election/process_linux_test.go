package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/hostclock"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(m, map[string]storetest.Role{"candidate": roleCandidate})
}

// processTTL is short, so that the test is; a busy machine may depose a leader
// that is well, which does no harm here.
const processTTL = time.Second

// roleCandidate stands until its input ends, and prints the moments, by the clock of the host, at
// which the context of a term was valid.
func roleCandidate(args []string) error {
	locks, err := holdfast.Open(context.Background(), args[0], &holdfast.Config{Holder: args[1]})
	if err != nil {
		return err
	}
	defer locks.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		storetest.UntilEOF()
		cancel()
	}()
	e := election.New(locks, "office", &election.Options{TTL: processTTL})
	err = e.Run(ctx, func(ctx context.Context, term election.Term) error {
		for {
			at := hostclock.Now() // before the look: it was valid then, if it is now
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Println(term.Token, at.Nanoseconds())
			time.Sleep(time.Millisecond)
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// TestNoTwoTermsAreValid kills, stops and cuts off the leader, again and again,
// and judges by what each candidate saw of its own context: the terms follow
// each other with no moment in common, and their tokens rise.
func TestNoTwoTermsAreValid(t *testing.T) {
	storetest.EachShared(t, func(t *testing.T, s *storetest.Store) {
		r := newRace(t, s)
		faults := []string{"kill", "stop"}
		if s.Networked() {
			faults = append(faults, "cut")
		}
		took := map[string][]time.Duration{}
		for range storetest.Rounds(t, 1) {
			for _, fault := range faults {
				took[fault] = append(took[fault], r.depose(fault))
			}
		}
		r.end()
		r.judge()
		for _, fault := range faults {
			slices.Sort(took[fault])
			t.Logf("%s: a new leader after p50 %v, max %v, of %d", fault,
				took[fault][len(took[fault])/2].Round(time.Millisecond), slices.Max(took[fault]).Round(time.Millisecond), len(took[fault]))
		}
	})
}

// A race is some candidates in processes of their own, and what they print.
type race struct {
	t          *testing.T
	store      *storetest.Store
	candidates []*candidate

	mu    sync.Mutex
	terms map[int64]*span // by token
}

type candidate struct {
	*storetest.Process
	link *storetest.Link // nil if the store is not reached by a network
}

// A span is when a term was seen to be valid, and by whom.
type span struct {
	leader      int
	first, last time.Duration
}

func newRace(t *testing.T, s *storetest.Store) *race {
	r := &race{t: t, store: s, terms: map[int64]*span{}}
	for i := range 3 {
		c := &candidate{}
		if s.Networked() {
			c.link = s.Link(t)
		}
		r.candidates = append(r.candidates, c)
		r.start(i)
	}
	return r
}

func (r *race) start(i int) {
	url := r.store.URL()
	if link := r.candidates[i].link; link != nil {
		url = link.URL
	}
	hear := func(line string) { r.hear(i, line) }
	r.candidates[i].Process = storetest.Start(r.t, hear, "candidate", url, fmt.Sprintf("candidate-%d", i))
}

// hear takes note of a moment in a term.
func (r *race) hear(leader int, line string) {
	var token int64
	var at time.Duration
	if n, err := fmt.Sscan(line, &token, &at); n != 2 {
		r.t.Errorf("candidate %d says %q: %v", leader, line, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	term := r.terms[token]
	if term == nil {
		r.terms[token] = &span{leader: leader, first: at, last: at}
		return
	}
	if term.leader != leader {
		r.t.Errorf("candidates %d and %d lead under one token, %d", term.leader, leader, token)
	}
	term.last = max(term.last, at)
}

// newest returns the greatest token and its term.
func (r *race) newest() (int64, span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var greatest int64
	for token := range r.terms {
		greatest = max(greatest, token)
	}
	if greatest == 0 {
		return 0, span{}
	}
	return greatest, *r.terms[greatest]
}

// depose does harm to the leader, and returns how long it took until another
// led.
func (r *race) depose(fault string) time.Duration {
	r.t.Helper()
	storetest.Eventually(r.t, "somebody leads", func() bool {
		_, term := r.newest()
		return term.last > hostclock.Now()-processTTL/10
	})
	token, term := r.newest()
	leader := r.candidates[term.leader]
	began := hostclock.Now()
	mend := r.harm(leader, term.leader, fault)
	var next span
	storetest.Eventually(r.t, "another leads after "+fault, func() bool {
		var newer int64
		newer, next = r.newest()
		return newer > token && next.leader != term.leader
	})
	mend()
	return next.first - began
}

// harm does harm to a candidate and returns what makes it good.
func (r *race) harm(c *candidate, i int, fault string) (mend func()) {
	switch fault {
	case "kill":
		c.Kill()
		return func() { r.start(i) }
	case "stop":
		c.Pause()
		return c.Resume
	}
	c.link.Cut()
	return c.link.Mend
}

func (r *race) end() {
	for _, c := range r.candidates {
		c.Finish()
	}
}

// judge checks that the terms follow each other.
func (r *race) judge() {
	var tokens []int64
	for token := range r.terms {
		tokens = append(tokens, token)
	}
	slices.Sort(tokens)
	for i := 1; i < len(tokens); i++ {
		before, after := r.terms[tokens[i-1]], r.terms[tokens[i]]
		if before.last >= after.first {
			r.t.Errorf("the term of token %d was valid %v after that of token %d began", tokens[i-1], before.last-after.first, tokens[i])
		}
	}
	r.t.Logf("%d terms", len(tokens))
}
