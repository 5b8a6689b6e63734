package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// An illStore is a memory store that claims to be a server, with one thing wrong.
type illStore struct {
	*memstore.Store
	acquire  func(*driver.AcquireRequest)
	acquired func(*driver.AcquireResult)
	renewed  driver.RenewOutcome
	kept     bool // a release reports that there was no hold
	later    bool // no lock can be taken yet
	lookup   func(*driver.Record, *bool) error
	mute     bool // no notices
	vague    int  // how many notices are for all names
	findings []driver.Finding
	err      error // of Examine
	hung     bool
	stuck    bool // it refuses to release
	forget   func(name string) error
}

func (s *illStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.Scope = driver.ScopeNetwork
	return g
}

func (s *illStore) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if s.later {
		return driver.AcquireResult{}, &driver.RetryError{Err: errors.New("it is loading")}
	}
	if s.acquire != nil {
		s.acquire(&req)
	}
	res, err := s.Store.Acquire(ctx, req)
	if s.acquired != nil {
		s.acquired(&res)
	}
	return res, err
}

func (s *illStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	outcomes, err := s.Store.Renew(ctx, reqs)
	if s.renewed != 0 {
		outcomes[0] = s.renewed
	}
	return outcomes, err
}

func (s *illStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if s.stuck {
		return false, errors.New("no right to release")
	}
	ended, err := s.Store.Release(ctx, req)
	return ended && !s.kept, err
}

func (s *illStore) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	rec, found, err := s.Store.Lookup(ctx, name)
	if s.lookup != nil {
		err = s.lookup(&rec, &found)
	}
	return rec, found, err
}

func (s *illStore) Notify(f func(driver.Notice)) (stop func()) {
	if s.mute {
		return func() {}
	}
	return s.Store.Notify(func(n driver.Notice) {
		if s.vague--; s.vague >= 0 {
			n = driver.Notice{Kind: driver.Ask}
		}
		f(n)
	})
}

func (s *illStore) Examine(ctx context.Context, _ driver.Examination) ([]driver.Finding, error) {
	if s.hung {
		<-ctx.Done()
		return s.findings, ctx.Err()
	}
	return s.findings, s.err
}

func (s *illStore) Forget(_ context.Context, name string) error {
	if s.forget != nil {
		return s.forget(name)
	}
	return nil
}

// severities returns the checks with what was found, in order.
func severities(findings []holdfast.Finding) string {
	var all []string
	for _, f := range findings {
		all = append(all, f.Check+" "+f.Severity.String())
	}
	return strings.Join(all, ", ")
}

func TestExamine(t *testing.T) {
	slow := func(d time.Duration) func(*illStore) {
		return func(s *illStore) {
			s.lookup = func(*driver.Record, *bool) error { time.Sleep(d); return nil }
		}
	}
	clock := func(offset time.Duration) func(*illStore) {
		return func(s *illStore) {
			s.lookup = func(rec *driver.Record, _ *bool) error { rec.Since = rec.Since.Add(offset); return nil }
		}
	}
	const well = "latency ok, probe ok, clock ok, notices ok"
	for what, c := range map[string]struct {
		ill        func(*illStore)
		want, says string
	}{
		"well":         {func(*illStore) {}, well, "notified"},
		"slow":         {slow(1100 * time.Millisecond), "latency warn, probe ok, clock ok, notices ok", "TTL of 33s"},
		"fast enough":  {slow(900 * time.Millisecond), well, "takes 900ms"},
		"too slow":     {slow(2900 * time.Millisecond), "latency warn, probe ok, clock ok, notices ok", "takes 2.9s"},
		"serves later": {func(s *illStore) { s.later = true }, "latency ok, probe warn", "another examination"},
		"two owners":   {func(s *illStore) { s.acquire = func(req *driver.AcquireRequest) { req.Name += req.Owner } }, "latency ok, probe fail", "second owner"},
		"refuses":      {func(s *illStore) { s.acquired = func(res *driver.AcquireResult) { res.Granted = false } }, "latency ok, probe fail", "take a free lock: it is refused"},
		"one token": {func(s *illStore) {
			s.acquired, s.renewed = func(res *driver.AcquireResult) { res.Token = min(res.Token, 7) }, driver.Renewed
		}, "latency ok, probe fail", "token 7 was granted after 7"},
		"renewal is lost":    {func(s *illStore) { s.renewed = driver.RenewLost }, "latency ok, probe fail", "renew a lock: it is lost"},
		"not released":       {func(s *illStore) { s.kept = true }, "latency ok, probe fail", "release a lock: it is not held"},
		"cannot release":     {func(s *illStore) { s.stuck = true }, "latency ok, probe fail, trace warn", "may be taken still: it is gone in 10s"},
		"nothing is found":   {func(s *illStore) { s.lookup = func(_ *driver.Record, found *bool) error { *found = false; return nil } }, "latency ok, probe fail", "look up"},
		"clock ahead":        {clock(1500 * time.Millisecond), "latency ok, probe ok, clock warn, notices ok", "1.5s ahead of"},
		"clock behind":       {clock(-3 * time.Second), "latency ok, probe ok, clock warn, notices ok", "3s behind"},
		"clock a bit off":    {clock(900 * time.Millisecond), well, "at most 900ms"},
		"mute":               {func(s *illStore) { s.mute = true }, "latency ok, probe ok, clock ok, notices warn", "not notified of a release within 3s"},
		"says little":        {func(s *illStore) { s.vague = 1 }, well, "was notified"},
		"always says little": {func(s *illStore) { s.vague = 100 }, "latency ok, probe ok, clock ok, notices warn", "not notified"},
		"no queue":           {func(s *illStore) { s.acquire = func(req *driver.AcquireRequest) { req.Queue = 0 } }, "latency ok, probe ok, clock ok, notices warn", "try at intervals"},
		"findings of the store": {func(s *illStore) {
			s.findings = []driver.Finding{{Check: "ill.disk", Severity: driver.SeverityWarning, Found: "full", Want: "room", Remedy: "rm"}}
		}, "ill.disk warn, " + well, "warn ill.disk: full; want room; try rm"},
		"a failure is the reason": {func(s *illStore) {
			s.findings = []driver.Finding{{Check: "ill.table", Severity: driver.SeverityFailure, Found: "no table"}}
			s.lookup = func(*driver.Record, *bool) error { return errors.New("no table") }
		}, "ill.table fail", "no table"},
		"a name that stays": {func(s *illStore) { s.forget = func(string) error { return errors.New("no right") } }, well + ", trace warn", "no right"},
	} {
		t.Run(what, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := &illStore{Store: memstore.New()}
				defer store.Close()
				c.ill(store)
				findings, err := holdfast.Examine(ctx, store, nil)
				if got := severities(findings); err != nil || got != c.want {
					t.Errorf("%s, %v, want %s", got, err, c.want)
				}
				if !slices.ContainsFunc(findings, func(f holdfast.Finding) bool { return strings.Contains(f.String(), c.says) }) {
					t.Errorf("no finding says %q: %q", c.says, findings)
				}
				for _, f := range findings {
					if (f.Severity == driver.SeverityOK) != (f.Want == "") && f.Check != "ill.table" {
						t.Errorf("%+v: only what is not well has something to want", f)
					}
				}
				store.acquire, store.lookup = nil, nil
				for rec := range store.List(ctx, "") {
					if what != "two owners" && !store.stuck { // whose names are not those that are released
						t.Errorf("left behind: %+v", rec)
					}
				}
			})
		})
	}
}

// What cannot be examined is an error, with the findings made before.
func TestExamineUnreachable(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		refused := errors.New("refused")
		for what, ill := range map[string]func(*illStore){
			"by its own checks": func(s *illStore) {
				s.findings, s.err = []driver.Finding{{Check: "ill.node", Severity: driver.SeverityFailure}}, refused
			},
			"by a request": func(s *illStore) {
				s.findings = []driver.Finding{{Check: "ill.node", Severity: driver.SeverityWarning}}
				s.lookup = func(*driver.Record, *bool) error { return refused }
			},
		} {
			store := &illStore{Store: memstore.New()}
			ill(store)
			findings, err := holdfast.Examine(ctx, store, nil)
			if !errors.Is(err, holdfast.ErrUnavailable) || !errors.Is(err, refused) || len(findings) != 1 {
				t.Errorf("%s: %v, %v", what, findings, err)
			}
			_ = store.Close()
		}
	})
}

// A store that hangs is left.
func TestExamineHung(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := &illStore{Store: memstore.New(), hung: true}
		defer store.Close()
		began := time.Now()
		if _, err := holdfast.Examine(ctx, store, nil); !errors.Is(err, holdfast.ErrUnavailable) || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// The options choose the TTL and the names, and whether a lock is taken. Each examination has a
// name of its own, which it passes to Forget.
func TestExamineOptions(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var tried, forgotten []string
		store := &illStore{Store: memstore.New(), forget: func(name string) error { forgotten = append(forgotten, name); return nil }}
		defer store.Close()
		store.acquire = func(req *driver.AcquireRequest) { tried = append(tried, req.Name) }
		store.lookup = func(*driver.Record, *bool) error { time.Sleep(100 * time.Millisecond); return nil }
		findings, err := holdfast.Examine(ctx, store, &holdfast.ExamineOptions{TTL: 2 * time.Second, NoProbe: true})
		if got := severities(findings); err != nil || got != "latency warn" || len(tried)+len(forgotten) > 0 {
			t.Errorf("%s, %v, with the names %q", got, err, tried)
		}
		findings, _ = holdfast.Examine(ctx, store, &holdfast.ExamineOptions{TTL: 200 * time.Millisecond, NoProbe: true})
		if got := severities(findings); got != "latency fail" {
			t.Error(got)
		}
		for range 2 {
			if _, err := holdfast.Examine(ctx, store, &holdfast.ExamineOptions{Prefix: "app/"}); err != nil {
				t.Error(err)
			}
		}
		slices.Sort(tried)
		if names := slices.Compact(tried); len(names) != 2 || len(forgotten) != 2 || !slices.Contains(names, forgotten[0]) || !strings.HasPrefix(names[0], "app/holdfast-doctor/") {
			t.Errorf("tried %q, forgotten %q", tried, forgotten)
		}
		_, err = holdfast.Examine(ctx, store, &holdfast.ExamineOptions{TTL: -1})
		wantErr(t, err, holdfast.ErrInvalid)
	})
}

// An examination that is cut short leaves no lock.
func TestExamineCutShort(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		cut, cancel := context.WithCancel(ctx)
		store := &illStore{Store: memstore.New(), mute: true}
		defer store.Close()
		time.AfterFunc(time.Second, cancel)
		findings, err := holdfast.Examine(cut, store, nil)
		if got := severities(findings); err != nil || got != "latency ok, probe ok, clock ok, notices unknown" {
			t.Errorf("%s, %v", got, err)
		}
		for rec := range store.List(ctx, "") {
			t.Errorf("left behind: %+v", rec)
		}
	})
}

// What Detach returns examines what its store examines.
func TestExamineDetached(t *testing.T) {
	ill := driver.Finding{Check: "ill.disk", Severity: driver.SeverityWarning, Found: "full", Want: "room"}
	inner := &illStore{Store: memstore.New(), findings: []driver.Finding{ill}, forget: func(string) error { return errors.New("no right") }}
	for store, want := range map[driver.Store]string{
		driver.Detach(inner):          "ill.disk warn, latency ok, probe ok, clock ok, notices ok, trace warn",
		driver.Detach(memstore.New()): "latency ok, probe ok, notices ok",
	} {
		findings, err := holdfast.Examine(t.Context(), store, nil)
		if got := severities(findings); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
		_ = store.Close()
	}
	text, err := json.Marshal(ill)
	if err != nil || !strings.Contains(string(text), `"Severity":"warn"`) {
		t.Errorf("%s, %v", text, err)
	}
}
