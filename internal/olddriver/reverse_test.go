package olddriver

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A modern store of the new contract refuses the second Acquire of an owner.
type modern struct {
	driver.Store
	sent []string
	has  map[string]int64
}

func (s *modern) Guarantees() driver.Guarantees {
	return driver.Guarantees{Fencing: true, Queue: true, InProcess: true, Crash: driver.FateFreed}
}

func (s *modern) Acquire(_ context.Context, req driver.Request) (driver.Result, error) {
	s.sent = append(s.sent, fmt.Sprintf("acquire %s place=%v limit=%d tokens=%d", req.Owner, req.Place, req.Limit, req.Tokens))
	if s.has[req.Owner] != 0 {
		return driver.Result{}, driver.ErrInvalid
	}
	if len(s.has) > 0 {
		return driver.Result{Held: driver.Record{Holder: "other"}}, nil
	}
	s.has[req.Owner] = 7
	return driver.Result{Granted: true, Token: 7}, nil
}

func (s *modern) Renew(_ context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	var entries []driver.Entry
	for _, r := range reqs {
		s.sent = append(s.sent, fmt.Sprintf("renew %s/%d", r.Owner, r.Token))
		if token := s.has[r.Owner]; token != 0 && (r.Token == 0 || r.Token == token) {
			entries = append(entries, driver.Entry{State: driver.Held, Token: token})
		} else {
			entries = append(entries, driver.Entry{State: driver.Lost})
		}
	}
	return entries, nil
}

func (s *modern) Release(_ context.Context, req driver.ReleaseRequest) (bool, error) {
	_, had := s.has[req.Owner]
	delete(s.has, req.Owner)
	return had, nil
}

func (s *modern) Lookup(context.Context, string) ([]driver.Record, error) {
	return []driver.Record{{Name: "a", Token: 1, Limit: driver.Shared}, {Name: "a", Token: 2}}, nil
}

func (s *modern) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		_ = yield(driver.Record{Name: "a", Token: 1}, nil) && yield(driver.Record{Name: "a", Token: 2}, nil) &&
			yield(driver.Record{Name: "b", Token: 3}, nil) && yield(driver.Record{}, driver.ErrCorrupt) && yield(driver.Record{Name: "c", Token: 4}, nil)
	}
}

func TestUnwrap(t *testing.T) {
	old := &scripted{}
	if got := Unwrap(Adapt(old, 1)); got != old {
		t.Errorf("%v, want the store under the Adapter", got)
	}
	m := &modern{has: map[string]int64{}}
	s := Unwrap(m)
	if g := s.Guarantees(); g.Fair || g.Scope != ScopeProcess || g.HolderCrash != RecoveryAtOnce || !g.Fencing {
		t.Errorf("%+v, want no queue, the process, at once, fencing", g)
	}
	ask := AcquireRequest{Name: "a", Owner: "o", TTL: time.Minute, Queue: time.Minute, Limit: Shared}
	for range 2 {
		if res, err := s.Acquire(t.Context(), ask); err != nil || !res.Granted || res.Token != 7 {
			t.Errorf("%+v, %v, want the hold with token 7", res, err)
		}
	}
	second := ask
	second.Owner = "p"
	for range 2 {
		if res, err := s.Acquire(t.Context(), second); err != nil || res.Granted || res.Held.Holder != "other" {
			t.Errorf("%+v, %v, want a refusal", res, err)
		}
	}
	outcomes, err := s.Renew(t.Context(), []RenewRequest{{Name: "a", Owner: "o", Token: 7}, {Name: "a", Owner: "o", Token: 8}})
	if err != nil || len(outcomes) != 2 || outcomes[0] != Renewed || outcomes[1] != RenewLost {
		t.Errorf("%v, %v, want Renewed and RenewLost", outcomes, err)
	}
	delete(m.has, "o") // It has expired.
	if res, err := s.Acquire(t.Context(), ask); err != nil || !res.Granted {
		t.Errorf("after the end of the hold: %+v, %v, want a grant", res, err)
	}
	if ended, err := s.Release(t.Context(), ReleaseRequest{Name: "a", Owner: "o"}); !ended || err != nil {
		t.Errorf("Release: %v, %v", ended, err)
	}
	if res, err := s.Acquire(t.Context(), ask); err != nil || !res.Granted {
		t.Errorf("after a release: %+v, %v, want a grant", res, err)
	}
	const acquires, refused = "acquire o place=0s limit=2147483647 tokens=0", "acquire p place=0s limit=2147483647 tokens=0"
	want := []string{acquires, "renew o/0", refused, refused, "renew o/7", "renew o/8", "renew o/0", acquires, acquires}
	if got := strings.Join(m.sent, "; "); got != strings.Join(want, "; ") {
		t.Errorf("sent %q, want %q", got, strings.Join(want, "; "))
	}

	if rec, ok, err := s.Lookup(t.Context(), "a"); err != nil || !ok || rec.Limit != Shared || len(rec.Others) != 1 || rec.Others[0].Token != 2 {
		t.Errorf("Lookup: %+v, %v, %v", rec, ok, err)
	}
	var got []string
	for rec, err := range s.List(t.Context(), "") {
		got = append(got, fmt.Sprint(rec.Name, rec.Token, len(rec.Others), err != nil))
	}
	if want := "[a1 1 false b3 0 false 0 0 true c4 0 false]"; fmt.Sprint(got) != want {
		t.Errorf("List: %v, want %s", got, want)
	}
}
