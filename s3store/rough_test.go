//go:build unix

package s3store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const historyTTL = 3 * time.Second

// A history is what clients of one name rely on. A client relies on its lock for all of the TTL,
// from when it has sent the request.
type history struct {
	*testing.T
	server http.RoundTripper

	mu       sync.Mutex
	token    int64                // the greatest that was relied on
	until    map[string]time.Time // by owner
	released []string             // owners whose release was answered
}

// RoundTrip is a rough network: requests and replies are late or lost, and writes are served after
// they were given up.
func (h *history) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body) // of a reader in memory, which is closed when the request is given up
	}
	time.Sleep(rand.N(300 * time.Millisecond))
	switch rand.IntN(12) {
	case 0:
		return nil, errLost
	case 1:
		r = r.Clone(context.WithoutCancel(r.Context()))
		go func() {
			time.Sleep(rand.N(historyTTL))
			_, _ = h.serve(r, body)
		}()
		return nil, errLost
	}
	resp, err := h.serve(r, body)
	time.Sleep(rand.N(300 * time.Millisecond))
	if rand.IntN(12) == 0 {
		return nil, errLost
	}
	return resp, err
}

// serve has the server answer a request, and looks at what it has written.
func (h *history) serve(r *http.Request, body []byte) (*http.Response, error) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	h.mu.Lock()
	released := h.released
	h.mu.Unlock()
	resp, err := h.server.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK && r.Method == http.MethodPut {
		rec, _ := parse("n", body) // or a probe
		for _, e := range rec.Entries {
			if slices.Contains(released, e.Owner) {
				h.Errorf("%s is released, and has an entry", e.Owner)
			}
		}
	}
	return resp, err
}

func (h *history) relies(owner string, token int64, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other, end := range h.until {
		if other != owner && time.Now().Before(end) {
			h.Errorf("%s and %s rely on the lock", owner, other)
		}
	}
	if _, known := h.until[owner]; !known && token <= h.token {
		h.Errorf("%s has the token %d after %d", owner, token, h.token)
	}
	h.token = max(h.token, token)
	if until.After(h.until[owner]) {
		h.until[owner] = until
	}
}

// play has an owner acquire the lock, renew it a few times, and release it.
func (h *history) play(s *Store, owner string) {
	call := func(f func(ctx context.Context, sent time.Time) error) error {
		ctx, cancel := context.WithTimeout(h.Context(), historyTTL/2)
		defer cancel()
		return f(ctx, time.Now())
	}
	waits := false
	_ = call(func(ctx context.Context, sent time.Time) error {
		res, err := s.Acquire(ctx, driver.Request{Name: "n", Owner: owner, Holder: "h", TTL: historyTTL, Place: historyTTL})
		waits = res.Granted || res.Waiting
		if res.Granted {
			h.relies(owner, res.Token, sent.Add(historyTTL))
		}
		return err
	})
	for range 6 {
		if !waits {
			break
		}
		time.Sleep(rand.N(historyTTL / 2))
		_ = call(func(ctx context.Context, sent time.Time) error {
			entries, err := s.Renew(ctx, []driver.RenewRequest{{Name: "n", Owner: owner, TTL: historyTTL}})
			if e := entries[0]; e.State == driver.Held {
				h.relies(owner, e.Token, sent.Add(historyTTL))
			} else if e.State == driver.Lost {
				waits = false
			}
			return err
		})
	}
	h.mu.Lock()
	delete(h.until, owner)
	h.mu.Unlock()
	for range 100 {
		if call(func(ctx context.Context, _ time.Time) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{Name: "n", Owner: owner})
			return err
		}) == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.released = append(h.released, owner)
			return
		}
	}
	h.Error("no release is answered")
}

// Whatever becomes of requests, one client at most relies on the lock, tokens rise, and a release
// that was answered has left nothing.
func TestRoughNetwork(t *testing.T) {
	t.Parallel()
	rounds := 60
	if os.Getenv("TEST_WHOLE") != "" {
		rounds = 2000
	}
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			h := &history{T: t, server: inProcess{fake(t)}, until: map[string]time.Time{}}
			var clients sync.WaitGroup
			for i := range 1 + round%3 {
				s := open(t, dial("", h), "")
				clients.Go(func() {
					for n := range 4 {
						h.play(s, fmt.Sprint("client ", i, ", ", n))
					}
				})
			}
			clients.Wait()
			time.Sleep(historyTTL) // Nothing is under way any more.
		})
	}
}
