package lockui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

const (
	listTimeout     = time.Minute      // of a whole listing
	answerTimeout   = 2 * time.Second  // of a request, which then has a silent store as it was
	examineInterval = 10 * time.Minute // while somebody watches
	examineRetry    = 15 * time.Second // after an examination that could not be made
	examineTimeout  = 30 * time.Second
)

// A store is a store that is shown.
type store struct {
	name   string
	client *holdfast.Client

	mu        sync.Mutex
	listing   chan struct{} // closed at the end of the listing under way, nil if there is none
	snapshot  *lockview.Snapshot
	failures  int64
	examining bool
	examined  time.Time // zero before the first examination
	findings  []doctor.Finding
	unfit     error // the examination could not be made
}

// canList reports whether the store lists its locks, as far as its last answer shows.
func (s *store) canList() bool { return !errors.Is(s.snapshot.Failure(), holdfast.ErrUnsupported) }

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// refresh starts a listing if the last one is older than maxAge and none is under way. The channel
// is closed at its end. Listings are not bound to a request, so that a slow store is listed at all.
func (s *store) refresh(maxAge time.Duration) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing != nil {
		return s.listing
	}
	if !s.snapshot.At.IsZero() && time.Since(s.snapshot.At) < maxAge {
		return closed
	}
	s.listing = make(chan struct{})
	go func(last *lockview.Snapshot) {
		ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
		defer cancel()
		snapshot := lockview.Take(ctx, s.client, "", last)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.snapshot = snapshot
		if snapshot.Failure() != nil {
			s.failures++
		}
		close(s.listing)
		s.listing = nil
	}(s.snapshot)
	return s.listing
}

// refreshAll lists all stores that were not listed within the interval, and lets them examine
// themselves in the background. It waits for a moment at most.
func (p *page) refreshAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var listings []<-chan struct{}
	for _, s := range p.stores {
		listings = append(listings, s.refresh(p.Interval*9/10)) // viewers ask at the interval
		s.examine()
	}
	for _, done := range listings {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// examine examines a store in the background, unless that was done lately.
func (s *store) examine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	interval := examineInterval
	if s.unfit != nil {
		interval = examineRetry
	}
	if s.examining || !s.examined.IsZero() && time.Since(s.examined) < interval {
		return
	}
	s.examining = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), examineTimeout)
		defer cancel()
		findings, err := doctor.Examine(ctx, s.client.Store(), &doctor.Options{NoProbe: true})
		s.mu.Lock()
		defer s.mu.Unlock()
		s.examining, s.examined, s.findings, s.unfit = false, time.Now(), findings, err
		if err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			s.findings = nil
		}
		slices.SortStableFunc(s.findings, func(a, b doctor.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	}()
}

// States of a store.
const (
	storeLive     = "live"
	storeAsked    = "asked"    // and has never answered
	storeSilent   = "silent"   // its locks are those that were seen last
	storeUnlisted = "unlisted" // it cannot list its locks
)

// A storeView is a store as JSON.
type storeView struct {
	Name     string           `json:"name"`
	State    string           `json:"state"`
	SilentMS int64            `json:"silent_ms,omitempty"` // since the last answer
	Error    string           `json:"error,omitempty"`
	Unfit    string           `json:"unfit,omitempty"`
	Findings []doctor.Finding `json:"findings,omitempty"`
}

// A holdView is a hold as JSON: its name is that of the lock, and what is left of it is as of now.
type holdView struct {
	Store int   `json:"store"`
	AgeMS int64 `json:"age_ms,omitempty"`
	lockview.View
}

// view returns what viewers see of a store.
func (s *store) view(index int, interval time.Duration) (storeView, []holdView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	v := storeView{Name: s.name, State: storeLive, Findings: s.findings}
	age, stale := s.snapshot.Stale(now, interval)
	switch failure := s.snapshot.Failure(); {
	case !s.canList():
		v.State = storeUnlisted
	case s.snapshot.Answered.IsZero() && failure == nil:
		v.State = storeAsked
	case stale:
		v.State = storeSilent
	}
	if !s.snapshot.Answered.IsZero() && v.State == storeSilent {
		v.SilentMS = age.Milliseconds()
	}
	if v.State != storeUnlisted && len(s.snapshot.Errs) > 0 {
		v.Error = s.snapshot.Errs[0].Error()
	}
	if s.unfit != nil {
		v.Unfit = s.unfit.Error()
	}
	var holds []holdView
	passed := now.Sub(s.snapshot.At)
	for _, lock := range s.snapshot.Locks {
		for _, hold := range lock {
			h := holdView{Store: index}
			if age, ok := lockview.Age(hold); ok {
				h.AgeMS = age.Milliseconds()
			}
			if hold.Remaining > 0 {
				hold.Remaining = max(hold.Remaining-passed, time.Millisecond)
			}
			h.View = lockview.NewView(hold)
			holds = append(holds, h)
		}
	}
	return v, holds
}

// serveLocks answers with all stores and holds.
func (p *page) serveLocks(w http.ResponseWriter, r *http.Request) {
	p.refreshAll(r.Context())
	answer := struct {
		IntervalMS int64       `json:"interval_ms"`
		AllowBreak bool        `json:"allow_break"`
		SignedIn   bool        `json:"signed_in"` // and can sign out
		Stores     []storeView `json:"stores"`
		Locks      []holdView  `json:"locks"`
	}{p.Interval.Milliseconds(), p.AllowBreak, p.session != "", []storeView{}, []holdView{}}
	for i, s := range p.stores {
		v, holds := s.view(i, p.Interval)
		answer.Stores = append(answer.Stores, v)
		answer.Locks = append(answer.Locks, holds...)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a viewer that is gone needs no answer
}
