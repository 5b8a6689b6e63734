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
	// viewInterval is how often the script of the page asks. The pause between listings is a little
	// shorter, so that each question of a viewer finds a new one.
	viewInterval = 2 * time.Second
	listPause    = viewInterval * 9 / 10

	listTimeout    = time.Minute      // of a whole listing
	answerTimeout  = 2 * time.Second  // of a request, which then has a silent store as it was
	examinePause   = 10 * time.Minute // while somebody watches
	examineRetry   = 15 * time.Second // after an examination that could not be made
	examineTimeout = 30 * time.Second

	// staleAfter is how much longer than expected a store may take to answer before its locks count
	// as old. A listing that takes as long as the last one did is no sign of silence.
	staleAfter = 2 * time.Second
)

// A store is a store that is shown.
type store struct {
	name   string
	client *holdfast.Client

	mu        sync.Mutex
	listing   bool             // a listing is under way
	done      chan struct{}    // closed at the end of the newest listing; nil before the first
	next      time.Time        // when the next listing is due
	failure   error            // of the last listing, nil if it was answered
	damaged   error            // the first damaged record of the last listing, nil if there is none
	answered  time.Time        // the end of the last listing that was answered; zero before the first
	took      time.Duration    // how long that listing took
	locks     []lockview.Lock  // of that listing
	examineAt time.Time        // when the next examination is due
	findings  []doctor.Finding // nil if it could not be examined
}

// canList reports whether the store lists its locks, as far as its last answer shows.
func (s *store) canList() bool { return !errors.Is(s.failure, holdfast.ErrUnsupported) }

// pause is the time between two listings: a slow store is listed for a quarter of the time at most.
func (s *store) pause() time.Duration { return max(listPause, 3*s.took) }

// refresh starts a listing if one is due and none is under way. The channel is closed at the end of
// the newest one. A listing is not bound to a request, so that a slow store is listed at all.
func (s *store) refresh() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listing && !time.Now().Before(s.next) {
		s.listing, s.done = true, make(chan struct{})
		go s.list()
	}
	return s.done
}

// list lists the locks, and then examines the store if that is due. A listing that fails leaves the
// locks of the last one that was answered, since a lock that is missing from it may be held.
func (s *store) list() {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	began := time.Now()
	locks, errs := lockview.List(ctx, s.client, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.damaged = nil, nil
	for _, err := range errs {
		if errors.Is(err, holdfast.ErrCorrupt) {
			s.damaged = cmp.Or(s.damaged, err)
		} else {
			s.failure = cmp.Or(s.failure, err)
		}
	}
	if s.failure == nil {
		s.answered, s.took, s.locks = time.Now(), time.Since(began), locks
	}
	s.listing, s.next = false, time.Now().Add(s.pause())
	close(s.done)
	if time.Now().Before(s.examineAt) {
		return
	}
	s.examineAt = time.Now().Add(examinePause)
	s.mu.Unlock()
	ctx, cancel = context.WithTimeout(context.Background(), examineTimeout)
	defer cancel()
	findings, err := doctor.Examine(ctx, s.client.Store(), &doctor.Options{NoProbe: true})
	slices.SortStableFunc(findings, func(a, b doctor.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	s.mu.Lock()
	if s.findings = findings; err != nil {
		s.examineAt = time.Now().Add(examineRetry)
	}
}

// refresh lists all stores that are due. It waits for a moment at most.
func (p *page) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var listings []<-chan struct{}
	for _, s := range p.stores {
		listings = append(listings, s.refresh())
	}
	for _, done := range listings {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
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
	Findings []doctor.Finding `json:"findings,omitempty"`
}

// A holdView is a hold as JSON, with the name of its lock. The time left of it is as of now.
type holdView struct {
	Store int   `json:"store"`
	AgeMS int64 `json:"age_ms,omitempty"`
	lockview.View
}

// view returns what viewers see of a store.
func (s *store) view(index int) (storeView, []holdView) {
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
	case passed > s.pause()+2*s.took+staleAfter:
		v.State, v.SilentMS = storeSilent, passed.Milliseconds()
	}
	if err := cmp.Or(s.failure, s.damaged); err != nil && s.canList() {
		v.Error = err.Error()
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
	p.refresh(r.Context())
	answer := struct {
		AllowBreak bool        `json:"allow_break"`
		Stores     []storeView `json:"stores"`
		Locks      []holdView  `json:"locks"`
	}{p.AllowBreak, []storeView{}, []holdView{}}
	for i, s := range p.stores {
		v, holds := s.view(i)
		answer.Stores = append(answer.Stores, v)
		answer.Locks = append(answer.Locks, holds...)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a viewer that is gone needs no answer
}
