package command

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

const (
	// leaderLookupInterval is how often the store is asked which process leads, at most.
	leaderLookupInterval = 250 * time.Millisecond

	// leaderLookupTimeout is how long the store may take for the answer.
	leaderLookupTimeout = 2 * time.Second
)

// A leaderPage tells over HTTP whether this process leads.
type leaderPage struct {
	client *holdfast.Client
	name   string
	lock   atomic.Pointer[holdfast.Lock] // the lock of the current term, nil without one

	mu    sync.Mutex
	known leaderAnswer // what the store has told
	asked time.Time    // when it was asked
}

// A leaderAnswer is the body of an answer.
type leaderAnswer struct {
	Leading bool   `json:"leading"`
	Error   string `json:"error,omitempty"`
	lockview.View
}

// handler serves the two paths.
func (p *leaderPage) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /leader", p.serveLeader)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}

// serveLeader answers 200 if this process leads, and 503 otherwise, with the leader as far as the
// store tells.
//
// The lock reads the clock just before the first byte of a 200 is written, and again before the
// last: an answer during which the process is paused for too long stays incomplete.
func (p *leaderPage) serveLeader(w http.ResponseWriter, _ *http.Request) {
	lock := p.lock.Load()
	var line []byte
	if lock != nil {
		line = jsonLine(leaderAnswer{Leading: true, View: lockview.NewView(holdfast.Record{
			Name: lock.Name(), Holder: lock.Holder(), Token: lock.Token(), Metadata: lock.Metadata(),
			Since: lock.Since(), Remaining: time.Until(lock.Deadline()),
		})})
	}
	if lock == nil || lock.Err() != nil {
		line = jsonLine(p.askStore())
		writeHeader(w, http.StatusServiceUnavailable, len(line))
		_, _ = w.Write(line)
		return
	}
	last := len(line) - 1
	writeHeader(w, http.StatusOK, len(line))
	_, _ = w.Write(line[:last])
	_ = http.NewResponseController(w).Flush()
	if lock.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(line[last:])
}

func writeHeader(w http.ResponseWriter, status, length int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(length))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

// askStore returns the leader. However many ask at a time, the store is asked once.
func (p *leaderPage) askStore() leaderAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) < leaderLookupInterval {
		return p.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaderLookupTimeout)
	defer cancel()
	records, err := p.client.Lookup(ctx, p.name)
	p.known = leaderAnswer{View: lockview.View{Name: p.name}}
	switch {
	case err == nil:
		p.known.View = lockview.NewLock(records).View()
	case errors.Is(err, holdfast.ErrUnsupported):
		p.known.Error = "the store does not name the leader"
	case !errors.Is(err, holdfast.ErrNotHeld):
		p.known.Error = "the store does not answer"
	}
	p.asked = time.Now()
	return p.known
}
