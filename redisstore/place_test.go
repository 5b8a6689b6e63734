//go:build unix

package redisstore

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/oldqueue/queuetest"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// place is how long a place lasts in tests that are not about its end.
const place = 30 * time.Second

// queueOf returns a request for a place.
func queueOf(name string) olddriver.AcquireRequest {
	req := request(name, time.Minute)
	req.Queue = place
	return req
}

func acquire(t *testing.T, s *engine, req olddriver.AcquireRequest) olddriver.AcquireResult {
	t.Helper()
	res, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire of %q: %v", req.Name, err)
	}
	return res
}

func claim(t *testing.T, s *engine, req olddriver.AcquireRequest) olddriver.AcquireResult {
	t.Helper()
	req.Claim = true
	return acquire(t, s, req)
}

// enqueue makes a place.
func enqueue(t *testing.T, s *engine, name string) olddriver.AcquireRequest {
	t.Helper()
	req := queueOf(name)
	if res := acquire(t, s, req); res.Granted || !res.Queued {
		t.Fatalf("Acquire of %q: %+v, want a place", name, res)
	}
	return req
}

// noticesOf returns the notices of a store from now on.
func noticesOf(t *testing.T, s *engine) <-chan olddriver.Notice {
	t.Helper()
	notices := make(chan olddriver.Notice, 1000)
	t.Cleanup(s.Notify(func(n olddriver.Notice) { notices <- n }))
	return notices
}

// expect returns the next notice, which must be of a kind and for the owner of a request.
func expect(t *testing.T, notices <-chan olddriver.Notice, kind olddriver.NoticeKind, req olddriver.AcquireRequest) olddriver.Notice {
	t.Helper()
	select {
	case n := <-notices:
		if n.Kind != kind || n.Name != req.Name || n.Owner != req.Owner || kind == olddriver.Granted != (n.Token > 0) {
			t.Fatalf("the notice %+v, want kind %v for %s", n, kind, req.Owner)
		}
		return n
	case <-time.After(bound):
		t.Fatalf("no notice of kind %v after %v", kind, bound)
	}
	return olddriver.Notice{}
}

// handsOn checks that a release admits the next, which is notified.
func handsOn(t *testing.T, s *engine, name string) {
	t.Helper()
	held := grant(t, s, name, time.Minute)
	next := enqueue(t, s, name)
	notices := noticesOf(t, s)
	release(t, s, held)
	granted := expect(t, notices, olddriver.Granted, next)
	if res := claim(t, s, next); !res.Granted || res.Token != granted.Token {
		t.Errorf("a claim after the notice %+v: %+v", granted, res)
	}
	release(t, s, next)
}

// silent checks that no notice has come.
func silent(t *testing.T, notices <-chan olddriver.Notice) {
	t.Helper()
	select {
	case n := <-notices:
		t.Fatalf("the notice %+v, want none", n)
	default:
	}
}

// skipped are the histories of what the value of a lock has no room for: how many tokens its hold
// has.
var skipped = []string{"a hold keeps all its tokens"}

// The store keeps the rule of package oldqueue.
func TestHistories(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	all, err := queuetest.Histories()
	if err != nil {
		t.Fatal(err)
	}
	const scale = 0.5
	var group sync.WaitGroup // Histories wait for time to pass: all of them at once.
	defer group.Wait()
	for _, h := range all {
		if slices.Contains(skipped, h.Title) {
			continue
		}
		s := open(t, server.Addr, nil)
		store := &historyStore{t: t, s: s, server: server, name: h.Title, owners: map[string]string{}, notices: noticesOf(t, s)}
		group.Go(func() {
			if err := queuetest.Play(h, scale, store); err != nil {
				t.Errorf("%s: %v", h.Title, err)
			}
		})
	}
}

// A historyStore is one name of a Store for histories. All owners are of one Store: a history has
// no word for where the notices go.
type historyStore struct {
	t       *testing.T
	s       *engine
	server  *servers.Redis
	name    string
	owners  map[string]string // the secrets
	began   time.Time
	passed  time.Duration
	notices <-chan olddriver.Notice
}

func (h *historyStore) owner(name string) string {
	if h.owners[name] == "" {
		h.owners[name] = request(h.name, 0).Owner
	}
	return h.owners[name]
}

func (h *historyStore) nameOf(owner string) string {
	for name, secret := range h.owners {
		if secret == owner {
			return name
		}
	}
	return owner
}

func (h *historyStore) Acquire(req queuetest.Request) queuetest.Reply {
	if h.began.IsZero() {
		h.began = time.Now()
	}
	res, err := h.s.Acquire(h.t.Context(), olddriver.AcquireRequest{
		Name: h.name, Owner: h.owner(req.Owner), Holder: req.Owner, TTL: req.TTL, Queue: req.Queue,
		Claim: req.Claim, Tokens: req.Tokens, Floor: req.Floor, Limit: req.Limit,
	})
	reply := queuetest.Reply{
		Token: res.Token, Tokens: max(res.Tokens, 1), Queued: res.Queued, First: res.First, Invalid: err != nil,
		Held: res.Held.Holder, Left: res.Held.Remaining,
	}
	if res.Held.Kept {
		reply.Held = "keep"
	}
	return reply
}

func (h *historyStore) Renew(owner string, token int64, ttl time.Duration) queuetest.Outcome {
	outcomes, err := h.s.Renew(h.t.Context(), []olddriver.RenewRequest{{Name: h.name, Owner: h.owner(owner), TTL: ttl, Token: token}})
	if err != nil {
		h.t.Error(err)
		return ""
	}
	return map[olddriver.RenewOutcome]queuetest.Outcome{
		olddriver.Renewed: queuetest.Renewed, olddriver.RenewQueued: queuetest.Queued, olddriver.RenewLost: queuetest.Lost,
	}[outcomes[0]]
}

func (h *historyStore) Release(owner string, keep time.Duration) bool {
	ended, err := h.s.Release(h.t.Context(), olddriver.ReleaseRequest{Name: h.name, Owner: h.owner(owner), Keep: keep})
	if err != nil {
		h.t.Error(err)
	}
	return ended
}

func (h *historyStore) Break(token int64) int {
	rec, ended, err := h.s.Break(h.t.Context(), olddriver.BreakRequest{Name: h.name, Token: token})
	if err != nil {
		h.t.Error(err)
	}
	if ended {
		return 1 + len(rec.Others)
	}
	return 0
}

// Notices returns the notices of the steps so far. They come before a message of this method on the
// same connection.
func (h *historyStore) Notices() (all []queuetest.Notice) {
	channel := h.s.notifier.channelName("")
	if h.server.Do("PUBLISH", channel, "0\n0\nend\nlock:"+h.name) == "0" {
		return nil
	}
	for n := range h.notices {
		switch {
		case n.Owner == "end":
			return all
		case n.Name == h.name && n.Kind == olddriver.Granted:
			all = append(all, queuetest.Notice{Owner: h.nameOf(n.Owner), Token: n.Token, Tokens: n.Tokens})
		case n.Name == h.name:
			all = append(all, queuetest.Notice{Owner: h.nameOf(n.Owner)})
		}
	}
	return all
}

func (h *historyStore) Now() int64 { return time.Now().UnixMicro() }

// Advance waits until a step is due.
func (h *historyStore) Advance(d time.Duration) {
	h.passed += d
	time.Sleep(time.Until(h.began.Add(h.passed)))
}
