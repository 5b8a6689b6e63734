package lockui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

const (
	listTimeout     = time.Minute      // of a whole listing
	examineInterval = 10 * time.Minute // while somebody watches
	examineRetry    = 15 * time.Second // after an examination that could not be made
	examineTimeout  = 30 * time.Second
	watchGap        = 15 * time.Second // without a listing, in which nobody has watched
	keptUpdates     = 16
	keptEvents      = 1000
	sameMoment      = 500 * time.Millisecond // two estimates of one moment are nearer than that
	sameTime        = 50 * time.Millisecond  // and so are two that the store has made
)

// A store is a store that is shown, guarded by page.mu.
type store struct {
	index  int
	name   string
	client *holdfast.Client

	listing  chan struct{} // closed at the end of the listing under way, nil if there is none
	began    time.Time     // the last listing
	took     time.Duration
	snapshot *lockview.Snapshot
	failures int64
	unseen   bool // nobody has watched for a while since the last answer
	silent   bool // an event has reported that the store does not answer
	rows     map[string]*row

	examining bool
	examined  time.Time // zero before the first examination
	findings  []doctor.Finding
	unfit     error // the examination could not be made
}

// A row is a lock that is shown.
type row struct {
	id    int
	store *store
	rec   holdfast.Record

	// since and until are by the clock of this host, zero if they are not known. lease is what was
	// left when the last renewal was seen, zero without an end that a renewal defers. end is
	// Record.Until as of then.
	since, until, end time.Time
	lease             time.Duration

	html fragment // as streams have it
}

// An event is a change that was seen. after is when the store was seen before, if that was long
// before; otherwise it is zero.
type event struct {
	store *store
	after time.Time
	lockview.Event
}

// Events of a store, beside those of its locks.
const (
	eventWatched  = "watched"
	eventUnseen   = "not watched"
	eventSilent   = "no answer"
	eventAnswered = "answers"
)

// An update is what has changed for the viewers of all locks.
type update struct {
	sequence int // after it
	data     []byte
}

// An updateView is an update as the script has it.
type updateView struct {
	Sequence string     `json:"seq"`
	Now      int64      `json:"now"`
	Reset    bool       `json:"reset,omitempty"`
	Rows     []fragment `json:"rows,omitempty"`  // new or changed
	Until    [][3]int64 `json:"until,omitempty"` // renewed: id, end, lease, in milliseconds
	Gone     []int      `json:"gone,omitempty"`
	Strip    fragment   `json:"strip"`
}

// join begins to watch, and reports whether there is room. The first viewer starts the listings,
// and the last one ends them.
func (p *page) join() (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers >= p.MaxViewers {
		return nil, false
	}
	p.viewers++
	if p.viewers == 1 {
		ctx, stop := context.WithCancel(context.Background())
		p.stopPolls = stop
		for _, s := range p.stores {
			go p.poll(ctx, s)
		}
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.viewers--; p.viewers == 0 {
			p.stopPolls()
		}
	}, true
}

// poll lists a store at intervals, and half of the time at most.
func (p *page) poll(ctx context.Context, s *store) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-p.refresh(s, p.Interval/2):
		}
		p.examine(s)
		p.mu.Lock()
		took := s.took
		p.mu.Unlock()
		pause.Reset(max(p.Interval, took))
	}
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// refresh lists a store, unless a listing is under way or is not older than maxAge. The channel is
// closed at its end. Listings are not bound to a request, so that a slow store is listed at all.
func (p *page) refresh(s *store, maxAge time.Duration) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.listing != nil {
		return s.listing
	}
	if !s.snapshot.At.IsZero() && time.Since(s.snapshot.At) < maxAge {
		return closed
	}
	now := time.Now()
	if !s.snapshot.At.IsZero() && now.Sub(s.snapshot.At) > max(watchGap, 3*p.Interval, 3*s.took) {
		s.unseen = true
	}
	s.listing, s.began = make(chan struct{}), now
	go func(last *lockview.Snapshot) {
		ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
		defer cancel()
		snapshot := lockview.Take(ctx, s.client, "", last)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.show(s, snapshot)
		close(s.listing)
		s.listing = nil
	}(s.snapshot)
	return s.listing
}

// refreshTimeout is how long an answer waits for listings: a slow store is shown as it was.
const refreshTimeout = 2 * time.Second

// refreshAfter lists a store after a change, for at most a moment.
func (p *page) refreshAfter(ctx context.Context, s *store) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	for range 2 { // The first listing may have begun before the change.
		select {
		case <-p.refresh(s, 0):
		case <-ctx.Done():
			return
		}
	}
}

// refreshAll lists all stores, for at most a moment.
func (p *page) refreshAll(ctx context.Context) {
	timeout := time.NewTimer(refreshTimeout)
	defer timeout.Stop()
	var listings []<-chan struct{}
	for _, s := range p.stores {
		listings = append(listings, p.refresh(s, p.Interval))
	}
	for _, done := range listings {
		select {
		case <-done:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// show makes a snapshot the one that is shown. The caller holds p.mu.
func (p *page) show(s *store, now *lockview.Snapshot) {
	last := s.snapshot
	s.snapshot, s.took = now, now.At.Sub(s.began)
	locks := now.ByName()
	p.addEvents(s, last, now, locks)
	if now.Failure() != nil {
		s.failures++
	}
	u := updateView{}
	for name, r := range s.rows {
		if _, ok := locks[name]; !ok {
			u.Gone = append(u.Gone, r.id)
			delete(s.rows, name)
		}
	}
	for _, rec := range now.Locks {
		r := s.rows[rec.Name]
		isNew := r == nil
		if isNew {
			p.lastRow++
			r = &row{id: p.lastRow, store: s}
			s.rows[rec.Name] = r
		}
		changed, renewed := r.set(rec, now.At)
		if isNew || changed {
			r.html = p.rowHTML(r, time.Time{})
			u.Rows = append(u.Rows, r.html)
		} else if renewed {
			u.Until = append(u.Until, [3]int64{int64(r.id), milliseconds(r.until), r.lease.Milliseconds()})
		}
	}
	p.sequence++
	p.updates = append(p.updates, update{p.sequence, p.encode(u)})
	if n := len(p.updates) - keptUpdates; n > 0 {
		p.updates = slices.Delete(p.updates, 0, n)
	}
	p.announce()
}

// announce wakes the viewers. The caller holds p.mu.
func (p *page) announce() {
	close(p.updated)
	p.updated = make(chan struct{})
}

// addEvents adds what has changed from one listing of a store to the next: one row for a time
// without an answer or without viewers, and the changes of locks. The caller holds p.mu.
func (p *page) addEvents(s *store, last, now *lockview.Snapshot, locks map[string]holdfast.Record) {
	var after time.Time
	if !last.Answered.IsZero() && now.At.Sub(last.Answered) > last.StaleAfter(p.Interval) {
		after = last.Answered
	}
	add := func(what string, after time.Time) {
		p.addEvent(event{s, after, lockview.Event{Time: now.At, Event: what}})
	}
	switch {
	case !s.canList():
	case now.Failure() != nil:
		if !s.silent {
			add(eventSilent, time.Time{})
		}
		s.silent = true
	case last.Answered.IsZero():
		add(eventWatched, time.Time{})
	case s.unseen:
		add(eventUnseen, after)
	case s.silent:
		add(eventAnswered, time.Time{})
	}
	if now.Failure() == nil {
		s.silent, s.unseen = false, false
	}
	if last.Answered.IsZero() {
		return // these locks are not new
	}
	for _, e := range lockview.EventsBetween(last.ByName(), locks, now.At) {
		p.addEvent(event{s, after, e})
	}
}

func (p *page) addEvent(e event) {
	p.events = append(p.events, e)
	if n := len(p.events) - keptEvents; n > 0 {
		p.events = slices.Delete(p.events, 0, n)
	}
}

// set makes rec what the row shows, as of a moment by the clock of this host. It reports whether
// more has changed than the end of the hold.
func (r *row) set(rec holdfast.Record, at time.Time) (changed, renewed bool) {
	same := lockview.SameHold(r.rec, rec)
	if age, ok := lockview.Age(rec); !ok {
		r.since = time.Time{}
	} else if since := at.Add(-age); !same || r.since.IsZero() {
		r.since = since
	}
	until := time.Time{}
	if lockview.HasExpiry(rec) {
		until = at.Add(rec.Remaining)
	}
	// A store that measures time in steps rounds what is left, so that the end seems to move. A
	// renewal moves it by a third of the TTL, at the second one at the latest by more than a fifth
	// of the lease.
	step := min(r.store.client.Guarantees().Grain, cmp.Or(r.lease, rec.Remaining)/5)
	moved := until.Sub(r.until).Abs() > max(step, sameMoment)
	extended := moved
	if !rec.Until.IsZero() { // The clock of the store does not take a slow listing for a renewal.
		extended = rec.Until.Sub(r.end).Abs() > max(step, sameTime)
	}
	switch {
	case rec.Kept, until.IsZero():
		r.lease = 0
	case !same, extended:
		r.lease = rec.Remaining
	}
	if !same || extended {
		r.end = rec.Until
	}
	if moved || extended || until.IsZero() != r.until.IsZero() || !same {
		r.until, renewed = until, true
	}
	changed = !reflect.DeepEqual(timeless(r.rec), timeless(rec))
	r.rec = rec
	return changed, renewed
}

// timeless returns a record without what a renewal changes.
func timeless(rec holdfast.Record) holdfast.Record {
	others := slices.Clone(rec.Others)
	rec.Remaining, rec.Until, rec.Others = 0, time.Time{}, others
	for i := range others {
		others[i].Remaining, others[i].Until = 0, time.Time{}
	}
	return rec
}

// expiring reports whether less than a third of the lease is left, so that a renewal is overdue.
func (r *row) expiring(now time.Time) bool {
	return r.lease > 0 && r.until.Sub(now) < r.lease/3
}

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// allRows returns the rows of all stores, by name. The caller holds p.mu.
func (p *page) allRows() []*row {
	var rows []*row
	for _, s := range p.stores {
		rows = slices.AppendSeq(rows, maps.Values(s.rows))
	}
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.rec.Name, b.rec.Name), cmp.Compare(a.store.index, b.store.index))
	})
	return rows
}

// sequenceText returns what names the state after an update. The caller holds p.mu.
func (p *page) sequenceText(n int) string { return fmt.Sprintf("%s-%d", p.generation, n) }

// encode returns an update for the present sequence as a message of a stream. The caller holds p.mu.
func (p *page) encode(u updateView) []byte {
	u.Sequence, u.Now, u.Strip = p.sequenceText(p.sequence), time.Now().UnixMilli(), p.stripHTML(time.Time{})
	return message("rows", u)
}

// message returns a server-sent event.
func message(name string, data any) []byte {
	var text bytes.Buffer
	text.WriteString("event: " + name + "\ndata: ")
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(data) // strings and numbers, to memory; ends the line
	text.WriteByte('\n')
	return text.Bytes()
}

// updatesSince returns what a viewer with the given state lacks: the updates since then, or all rows
// if it is too old.
func (p *page) updatesSince(state string) (messages [][]byte, now string, updated <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now = p.sequenceText(p.sequence)
	if state == now {
		return nil, now, p.updated
	}
	for i, u := range p.updates {
		if state == p.sequenceText(u.sequence-1) {
			for _, u := range p.updates[i:] {
				messages = append(messages, u.data)
			}
			return messages, now, p.updated
		}
	}
	if p.reset.sequence != p.sequence || p.reset.data == nil {
		u := updateView{Reset: true}
		for _, r := range p.allRows() {
			u.Rows = append(u.Rows, r.html)
			if !r.until.IsZero() {
				u.Until = append(u.Until, [3]int64{int64(r.id), milliseconds(r.until), r.lease.Milliseconds()})
			}
		}
		p.reset = update{p.sequence, p.encode(u)}
	}
	return [][]byte{p.reset.data}, now, p.updated
}

// examine lets a store examine itself in the background, unless that was done lately.
func (p *page) examine(s *store) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
		p.mu.Lock()
		defer p.mu.Unlock()
		s.examining, s.examined, s.findings, s.unfit = false, time.Now(), findings, err
		if err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			s.findings = nil
		}
		p.announce()
	}()
}
