package olddriver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A scripted store records the requests and answers them as a test says.
type scripted struct {
	Store
	fair    bool
	sent    []string
	acquire func(AcquireRequest) (AcquireResult, error)
	renewed []RenewOutcome

	renewals []RenewOutcome // of one request each, in place of renewed
	ended    bool
	record   Record
	notify   func(Notice)
}

func (s *scripted) Guarantees() Guarantees { return Guarantees{Fair: s.fair, Fencing: true} }

func (s *scripted) Acquire(_ context.Context, req AcquireRequest) (AcquireResult, error) {
	verb := "acquire"
	if req.Claim {
		verb = "claim"
	}
	s.sent = append(s.sent, fmt.Sprintf("%s %s ttl=%v queue=%v limit=%d tokens=%d", verb, req.Owner, req.TTL, req.Queue, req.Limit, req.Tokens))
	return s.acquire(req)
}

func (s *scripted) Renew(_ context.Context, reqs []RenewRequest) ([]RenewOutcome, error) {
	text := "renew"
	for _, r := range reqs {
		text += fmt.Sprintf(" %s/%d", r.Owner, r.Token)
	}
	s.sent = append(s.sent, text)
	if len(s.renewals) > 0 {
		first := s.renewals[:1]
		s.renewals = s.renewals[1:]
		return first, nil
	}
	return s.renewed, nil
}

func (s *scripted) Release(_ context.Context, req ReleaseRequest) (bool, error) {
	s.sent = append(s.sent, "release "+req.Owner)
	return s.ended, nil
}

func (s *scripted) Lookup(context.Context, string) (Record, bool, error) { return s.record, true, nil }
func (s *scripted) Break(_ context.Context, req BreakRequest) (Record, bool, error) {
	return s.record, req.Token == s.record.Token, nil
}

func (s *scripted) List(context.Context, string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) { _ = yield(s.record, nil) && yield(Record{}, driver.ErrCorrupt) }
}

func (s *scripted) Notify(f func(Notice)) func() {
	s.notify = f
	return func() { s.notify = nil }
}

// hasSent checks what was sent since the last call.
func (s *scripted) hasSent(t *testing.T, want ...string) {
	t.Helper()
	if got := strings.Join(s.sent, "; "); got != strings.Join(want, "; ") {
		t.Errorf("sent %q, want %q", got, strings.Join(want, "; "))
	}
	s.sent = nil
}

func answer(res AcquireResult, err error) func(AcquireRequest) (AcquireResult, error) {
	return func(AcquireRequest) (AcquireResult, error) { return res, err }
}

func req(owner string) driver.Request {
	return driver.Request{Name: "name", Owner: owner, TTL: 30 * time.Second}
}

func renewal(owner string, token int64) driver.RenewRequest {
	return driver.RenewRequest{Name: "name", Owner: owner, Token: token, TTL: 20 * time.Second}
}

// acquire sends a request, whose answer is not the matter of the test.
func acquire(t *testing.T, a *Adapter, req driver.Request) driver.Result {
	t.Helper()
	res, err := a.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return res
}

func renews(t *testing.T, a *Adapter, want []driver.Entry, reqs ...driver.RenewRequest) {
	t.Helper()
	got, err := a.Renew(t.Context(), reqs)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Renew: %v, %v, want %v", got, err, want)
	}
}

func held(token int64) driver.Entry { return driver.Entry{State: driver.Held, Token: token} }

var (
	lostEntry = driver.Entry{State: driver.Lost}
	waits     = driver.Entry{State: driver.Waiting}
)

func TestRequest(t *testing.T) {
	s := &scripted{fair: true, acquire: answer(AcquireResult{Granted: true, Token: 5, Tokens: 4}, nil)}
	a := Adapt(s, 4)
	for _, c := range []struct {
		change func(*driver.Request)
		want   string
	}{
		{func(r *driver.Request) {}, "acquire o ttl=30s queue=0s limit=0 tokens=0"},
		{func(r *driver.Request) { r.Limit, r.Tokens = 1, 1 }, "acquire o ttl=30s queue=0s limit=0 tokens=0"},
		{func(r *driver.Request) { r.Limit = 3 }, "acquire o ttl=30s queue=0s limit=3 tokens=0"},
		{func(r *driver.Request) { r.Limit = driver.Shared }, "acquire o ttl=30s queue=0s limit=-1 tokens=0"},
		{func(r *driver.Request) { r.Tokens, r.Place = 4, time.Second }, "acquire o ttl=30s queue=1s limit=0 tokens=4"},
	} {
		req := req("o")
		c.change(&req)
		if res := acquire(t, a, req); !res.Granted || res.Token != 5 {
			t.Errorf("%+v, want a grant with token 5", res)
		}
		s.hasSent(t, c.want)
	}
	for _, c := range []struct {
		change func(*driver.Request)
		want   error
	}{
		{func(r *driver.Request) { r.Tokens = 5 }, driver.ErrInvalid},
		{func(r *driver.Request) { r.Tokens, r.Limit = 2, 2 }, driver.ErrInvalid},
		{func(r *driver.Request) { r.Tokens, r.Floor = 2, 9 }, driver.ErrInvalid},
		{func(r *driver.Request) { r.Place, r.Floor = time.Second, 9 }, driver.ErrInvalid},
		{func(r *driver.Request) { r.Limit = -1 }, driver.ErrInvalid},
		{func(r *driver.Request) { r.Metadata = map[string]string{"a": "b"} }, driver.ErrUnsupported},
	} {
		req := req("o")
		c.change(&req)
		if _, err := a.Acquire(t.Context(), req); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", req, err, c.want)
		}
	}
	s.hasSent(t)
}

// A caller would use the tokens that it has requested, and not those that it was granted.
func TestFewTokens(t *testing.T) {
	s := &scripted{fair: true, acquire: answer(AcquireResult{Granted: true, Token: 5}, nil)}
	a := Adapt(s, 4)
	several := req("o")
	several.Tokens, several.Place = 4, time.Minute
	var later *driver.RetryError
	if _, err := a.Acquire(t.Context(), several); !errors.As(err, &later) {
		t.Errorf("a grant of one token for four: %v, want a RetryError", err)
	}
	s.hasSent(t, "acquire o ttl=30s queue=1m0s limit=0 tokens=4", "release o")

	s.acquire = answer(AcquireResult{Queued: true}, nil)
	if res := acquire(t, a, several); !res.Waiting || res.Token != 0 {
		t.Errorf("%+v, want a place without a token", res)
	}
	s.sent = nil
	var told []string
	a.Notify(func(name, owner string, token int64) { told = append(told, fmt.Sprint(name, owner, token)) })
	s.notify(Notice{Kind: Granted, Name: "name", Owner: "o", Token: 7, Tokens: 1})
	s.notify(Notice{Kind: Granted, Name: "name", Owner: "o", Token: 7, Tokens: 4})
	s.notify(Notice{Kind: Granted, Name: "name", Owner: "other", Token: 8})
	s.notify(Notice{Kind: Lost, Name: "name", Owner: "o"})
	s.notify(Notice{Kind: Ask})
	if want := "[nameo0 nameo7 nameother8 nameo0 0]"; fmt.Sprint(told) != want {
		t.Errorf("notices %v, want %v", told, want)
	}
	s.renewed, s.acquire = []RenewOutcome{Renewed}, answer(AcquireResult{Granted: true, Token: 7}, nil)
	renews(t, a, []driver.Entry{lostEntry}, renewal("o", 0))
	s.hasSent(t, "renew o/0", "claim o ttl=20s queue=20s limit=0 tokens=0", "release o")
}

func TestRenewAtQueue(t *testing.T) {
	s := &scripted{fair: true, renewed: []RenewOutcome{Renewed, Renewed, RenewQueued, RenewLost, RenewUnknown}}
	a := Adapt(s, 4)
	s.acquire = answer(AcquireResult{Granted: true, Token: 9}, nil)
	reqs := []driver.RenewRequest{renewal("a", 4), renewal("b", 0), renewal("c", 0), renewal("d", 3), renewal("e", 0)}
	renews(t, a, []driver.Entry{held(4), held(9), waits, lostEntry, {}}, reqs...)
	s.hasSent(t, "renew a/4 b/0 c/0 d/3 e/0", "claim b ttl=20s queue=20s limit=0 tokens=0")

	s.renewed, s.acquire = []RenewOutcome{Renewed}, answer(AcquireResult{}, nil)
	renews(t, a, []driver.Entry{lostEntry}, renewal("b", 0))
	s.acquire = answer(AcquireResult{Queued: true}, nil)
	renews(t, a, []driver.Entry{waits}, renewal("b", 0))
	s.acquire = answer(AcquireResult{}, errors.New("reset"))
	if got, err := a.Renew(t.Context(), []driver.RenewRequest{renewal("b", 0)}); err == nil || got[0] != (driver.Entry{}) {
		t.Errorf("a Claim that failed: %v, %v, want no answer and the error", got, err)
	}
}

// A store without a queue has its waiters ask again.
func TestRenewWithoutQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{acquire: answer(AcquireResult{Queued: true}, nil)}
		a := Adapt(s, 1)
		waiter := req("w")
		waiter.Place = 20 * time.Second
		acquire(t, a, waiter)
		s.sent = nil
		const again = "acquire w ttl=20s queue=20s limit=0 tokens=0"
		for range 3 {
			time.Sleep(15 * time.Second)
			renews(t, a, []driver.Entry{waits}, renewal("w", 0))
			s.hasSent(t, again)
		}
		s.acquire = answer(AcquireResult{Granted: true, Token: 6}, nil)
		renews(t, a, []driver.Entry{held(6)}, renewal("w", 0))
		s.hasSent(t, again)
		s.renewed = []RenewOutcome{Renewed}
		renews(t, a, []driver.Entry{held(6)}, renewal("w", 0))
		s.hasSent(t, "renew w/6")

		// A place has no token, so a request with one means another entry.
		waiter.Owner, s.acquire = "t", answer(AcquireResult{Queued: true}, nil)
		acquire(t, a, waiter)
		s.sent, s.renewed = nil, []RenewOutcome{RenewLost}
		renews(t, a, []driver.Entry{lostEntry}, renewal("t", 5))
		s.hasSent(t, "renew t/5")

		// A place that is over is lost, also if the name is free.
		waiter.Owner, s.acquire = "v", answer(AcquireResult{Queued: true}, nil)
		acquire(t, a, waiter)
		s.sent = nil
		time.Sleep(31 * time.Second)
		s.renewed = []RenewOutcome{RenewLost}
		renews(t, a, []driver.Entry{lostEntry}, renewal("v", 0))
		s.hasSent(t, "renew v/0")

		// A release of a place is one, and may be overtaken by the request that asks.
		waiter.Owner = "u"
		acquire(t, a, waiter)
		s.acquire = func(AcquireRequest) (AcquireResult, error) {
			if ended, err := a.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "u"}); !ended || err != nil {
				t.Errorf("Release of a place: %v, %v, want true", ended, err)
			}
			return AcquireResult{Granted: true, Token: 8}, nil
		}
		s.sent = nil
		renews(t, a, []driver.Entry{lostEntry}, renewal("u", 0))
		s.hasSent(t, "acquire u ttl=30s queue=20s limit=0 tokens=0", "release u", "release u")

		// A request without an answer is repeated if it has made a hold.
		s.acquire = answer(AcquireResult{}, errors.New("reset"))
		if _, err := a.Acquire(t.Context(), req("x")); err == nil {
			t.Error("no error of Acquire")
		}
		s.sent, s.renewed = nil, []RenewOutcome{Renewed}
		s.acquire = answer(AcquireResult{Granted: true, Token: 11}, nil)
		renews(t, a, []driver.Entry{held(11)}, renewal("x", 0))
		s.hasSent(t, "renew x/0", "acquire x ttl=30s queue=0s limit=0 tokens=0")
		s.renewed = []RenewOutcome{RenewLost}
		renews(t, a, []driver.Entry{lostEntry}, renewal("x", 11))

		// The token of a hold that another process has made is that with which its owner renews it.
		s.record = Record{Name: "name", Token: 13, Others: []Record{{Kept: true, Token: 14}, {Token: 15}}}
		s.sent, s.renewals = nil, []RenewOutcome{Renewed, RenewLost, Renewed}
		renews(t, a, []driver.Entry{held(15)}, renewal("z", 0))
		s.hasSent(t, "renew z/0", "renew z/13", "renew z/15")
		s.renewals = []RenewOutcome{Renewed, RenewLost, RenewLost}
		if got, err := a.Renew(t.Context(), []driver.RenewRequest{renewal("z", 0)}); err == nil || got[0] != (driver.Entry{}) {
			t.Errorf("a hold without a token that is known: %v, %v, want no answer and an error", got, err)
		}

		// Another token is that of no entry, and says nothing about the one that there is.
		s.acquire = answer(AcquireResult{Granted: true, Token: 21}, nil)
		acquire(t, a, req("q"))
		s.renewed = []RenewOutcome{RenewLost}
		renews(t, a, []driver.Entry{lostEntry}, renewal("q", 20))
		s.sent, s.renewed = nil, []RenewOutcome{Renewed}
		renews(t, a, []driver.Entry{held(21)}, renewal("q", 0))
		s.hasSent(t, "renew q/21")
		s.acquire = answer(AcquireResult{Granted: true, Token: 11}, nil)

		// Nothing stays for ever.
		time.Sleep(time.Hour)
		acquire(t, a, req("y"))
		if len(a.owners) != 1 {
			t.Errorf("%d owners are remembered, want the last one", len(a.owners))
		}
		s.acquire = answer(AcquireResult{}, nil)
		acquire(t, a, req("y"))
		if len(a.owners) != 0 {
			t.Errorf("%d owners are remembered, want none after a refusal", len(a.owners))
		}
	})
}

func TestRecords(t *testing.T) {
	s := &scripted{record: Record{Name: "name", Holder: "a", Token: 3, Limit: Shared, Waiting: 2, Others: []Record{{Name: "name", Holder: "b", Token: 4, Limit: 2}}}}
	a := Adapt(s, 1)
	want := []driver.Record{{Name: "name", Holder: "a", Token: 3, Limit: driver.Shared, Waiting: 2}, {Name: "name", Holder: "b", Token: 4, Limit: 2, Waiting: 2}}
	if got, err := a.Lookup(t.Context(), "name"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Lookup: %v, %v, want %v", got, err, want)
	}
	if got, err := a.Break(t.Context(), "name", 3); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Break: %v, %v, want %v", got, err, want)
	}
	if got, err := a.Break(t.Context(), "name", 4); err != nil || got != nil {
		t.Errorf("Break of nothing: %v, %v", got, err)
	}
	var got []driver.Record
	var failed error
	for rec, err := range a.List(t.Context(), "") {
		if err != nil {
			failed = err
		} else {
			got = append(got, rec)
		}
	}
	if !errors.Is(failed, driver.ErrCorrupt) || !reflect.DeepEqual(got, want) {
		t.Errorf("List: %v, %v, want %v and an error", got, failed, want)
	}
}
