package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// until leads until its context ends.
func until(ctx context.Context, _ election.Term) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestTermsFollowResignations: on every store, of three candidates one leads,
// and when it resigns another is elected, under a greater token.
func TestTermsFollowResignations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		elected := make(chan election.Term, 16)
		o := &election.Options{
			TTL:         10 * time.Second,
			ResignDelay: time.Minute, // so that another is elected, however slow
			Elected:     func(term election.Term) { elected <- term },
			Metadata:    map[string]string{"addr": "host:80"},
		}
		candidates := map[string]*election.Election{}
		ended := make(chan error, 3)
		for _, locks := range s.Replicas(t, 3) {
			e := election.New(locks, "office", o)
			candidates[locks.Holder()] = e
			go func() { ended <- e.Run(ctx, until) }()
		}
		watcher := election.New(s.Open(t, nil), "office", nil)

		term := receive(t, elected)
		for range len(candidates) - 1 {
			leading(t, watcher, candidates, term)
			began := time.Now()
			if err := candidates[term.Leader].Resign(ctx); err != nil {
				t.Fatal(err)
			}
			next := receive(t, elected)
			t.Logf("a new leader %v after the call of Resign", time.Since(began).Round(time.Microsecond))
			if next.Leader == term.Leader || next.Token <= term.Token {
				t.Fatalf("%+v was elected after %+v resigned", next, term)
			}
			term = next
		}
		cancel()
		for range candidates {
			if err := receive(t, ended); !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		}
		if _, err := watcher.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
			t.Errorf("all have left, and Leader returns %v", err)
		}
	})
}

// leading checks that all agree on the leader.
func leading(t *testing.T, watcher *election.Election, candidates map[string]*election.Election, want election.Term) {
	t.Helper()
	got, err := watcher.Leader(t.Context())
	if err != nil || got.Leader != want.Leader || got.Token != want.Token || got.Metadata["addr"] != "host:80" {
		t.Errorf("Leader: %+v, %v, want %+v", got, err, want)
	}
	for got, err := range watcher.Observe(t.Context()) {
		if err != nil || got.Leader != want.Leader || got.Token != want.Token {
			t.Errorf("Observe: %+v, %v, want %+v", got, err, want)
		}
		break
	}
	for name, e := range candidates {
		if term, leads := e.Leading(); leads != (name == want.Leader) || leads && term.Token != want.Token {
			t.Errorf("%s: Leading: %+v, %v", name, term, leads)
		}
	}
}

// TestBrokenLockEndsTheTerm: on every store, a leader whose lock is broken by force is
// deposed by its next renewal, with the reason.
func TestBrokenLockEndsTheTerm(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		locks := s.Open(t, nil)
		deposed := make(chan error, 16)
		elected := make(chan election.Term, 16)
		e := election.New(locks, "office", &election.Options{
			TTL:     time.Second,
			Elected: func(term election.Term) { elected <- term },
			Deposed: func(_ election.Term, reason error) { deposed <- reason },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx, until) }()
		first := receive(t, elected)
		if _, err := s.Open(t, nil).Break(ctx, "office", 0); err != nil {
			t.Fatal(err)
		}
		if reason := receive(t, deposed); !errors.Is(reason, holdfast.ErrLost) {
			t.Errorf("deposed: %v", reason)
		}
		if again := receive(t, elected); again.Token <= first.Token {
			t.Errorf("token %d after %d", again.Token, first.Token)
		}
		cancel()
		if err := receive(t, ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(time.Minute):
		t.Fatal("nothing within a minute")
		panic("unreachable")
	}
}
