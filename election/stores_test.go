package election_test

import (
	"context"
	"errors"
	"fmt"
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

// TestTermsFollowResignations: of three candidates one leads, and when it resigns another is
// elected, under a greater token.
func TestTermsFollowResignations(t *testing.T) {
	open := storetest.Server(t)
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
	for i := range 3 {
		locks := open(&holdfast.Config{Holder: fmt.Sprint("candidate-", i)})
		e := election.New(locks, "office", o)
		candidates[locks.Holder()] = e
		go func() { ended <- e.Run(ctx, until) }()
	}
	watcher := election.New(open(nil), "office", nil)

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
