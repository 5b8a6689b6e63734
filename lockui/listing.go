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

	// staleAfter is how much longer than expected a store may take to answer before its locks count
	// as old. A listing that takes as long as the last one did is no sign of silence.
	staleAfter = 2 * time.Second
)

// A store is a store that is shown.
type store struct {
	name   string
	client *holdfast.Client

	mu        sync.Mutex
	listing   chan struct{} // closed at the end of the listing under way, nil if there is none
	listed    time.Time     // the end of the last listing; zero before the first
	failure   error         // of the last listing, nil if it was answered
	damaged   error         // the first damaged record of the last listing, nil if there is none
	answered  time.Time     // the end of the last listing that was answered; zero before the first
	took      time.Duration // how long that listing took
	locks     []lockview.Lock
	examining bool
	examined  time.Time // zero before the first examination
	findings  []doctor.Finding
	unfit     error // the examination could not be made
}

// canList reports whether the store lists its locks, as far as its last answer shows.
func (s *store) canList() bool { return !errors.Is(s.failure, holdfast.ErrUnsupported) }

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// refresh starts a listing if the last one is older than maxAge and none is under way. The channel
// is closed at its end. Listings are not bound to a request, so that a slow store is listed at all.
func (s *store) refresh(maxAge time.Duration) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing != nil {
		return s.listing
	}
	if !s.listed.IsZero() && time.Since(s.listed) < maxAge {
		return closed
	}
	s.listing = make(chan struct{})
	go s.list()
	return s.listing
}

// list lists the locks. A listing that fails leaves those of the last one that was answered, since
// a lock that is missing from it may be held.
func (s *store) list() {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	began := time.Now()
	locks, errs := lockview.List(ctx, s.client, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.failure, s.damaged = time.Now(), nil, nil
	for _, err := range errs {
		if errors.Is(err, holdfast.ErrCorrupt) {
			s.damaged = cmp.Or(s.damaged, err)
		} else {
			s.failure = cmp.Or(s.failure, err)
		}
	}
	if s.failure == nil {
		s.answered, s.took, s.locks = s.listed, s.listed.Sub(began), locks
	}
	close(s.listing)
	s.listing = nil
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
	passed := time.Since(s.answered)
	v := storeView{Name: s.name, State: storeLive, Findings: s.findings}
	switch {
	case !s.canList():
		v.State = storeUnlisted
	case s.answered.IsZero() && s.failure == nil:
		v.State = storeAsked
	case s.answered.IsZero():
		v.State = storeSilent
	case passed > interval+2*s.took+staleAfter:
		v.State, v.SilentMS = storeSilent, passed.Milliseconds()
	}
	if err := cmp.Or(s.failure, s.damaged); err != nil && s.canList() {
		v.Error = err.Error()
	}
	if s.unfit != nil {
		v.Unfit = s.unfit.Error()
	}
	var holds []holdView
	for _, lock := range s.locks {
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
		Stores     []storeView `json:"stores"`
		Locks      []holdView  `json:"locks"`
	}{p.Interval.Milliseconds(), p.AllowBreak, []storeView{}, []holdView{}}
	for i, s := range p.stores {
		v, holds := s.view(i, p.Interval)
		answer.Stores = append(answer.Stores, v)
		answer.Locks = append(answer.Locks, holds...)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a viewer that is gone needs no answer
}
