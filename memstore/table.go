package memstore

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A lockTable is the data behind one or more Stores.
type lockTable struct {
	mu      sync.Mutex
	created time.Time
	names   map[string]*queue // those with an entry, perhaps an expired one
	unused  []*queue          // to be used again, so that a hold does not allocate
	tokens  tokens
	counter lockqueue.Counter // of the name in use
	grants  uint              // the number of grants, which paces sweepExpired

	openStores int // guarded by namedTables
}

type (
	// A queue is the state of a name. Times are since lockTable.created, on the monotonic clock.
	queue = lockqueue.Queue[holderData]

	// An entry is a hold, a place, or a keep.
	entry = lockqueue.Entry[holderData]
)

// holderData is what the table keeps with an entry.
type holderData struct {
	store    *Store // gets the notices
	holder   string
	metadata map[string]string
}

func newLockTable() *lockTable {
	return &lockTable{
		created:    time.Now(),
		names:      map[string]*queue{},
		tokens:     tokens{aheadOfCounter: map[string]int64{}},
		openStores: 1,
	}
}

func (t *lockTable) monotonicNow() time.Duration { return time.Since(t.created) }

// update runs f on the state of a name, while no other call uses the table. It then sends a notice
// for each entry that f returns: Granted if the entry has a token, otherwise Ask.
func (t *lockTable) update(
	name string, f func(q *queue, now time.Duration, c *lockqueue.Counter) []entry,
) {
	t.mu.Lock()
	q := t.names[name]
	if q == nil {
		if last := len(t.unused) - 1; last >= 0 {
			q, t.unused = t.unused[last], t.unused[:last]
		} else {
			q = &queue{}
		}
		t.names[name] = q
	}
	now := t.monotonicNow()
	t.counter = t.tokens.counterOf(name, t.created.Add(now).UnixMicro())
	last := t.counter.Last
	notified := f(q, now, &t.counter)
	if t.counter.Last != last {
		t.tokens.record(name, &t.counter)
		t.sweepExpired(now)
	}
	if q.Oldest() == nil && q.First() == nil {
		delete(t.names, name)
		if len(t.unused) < sweepSize {
			t.unused = append(t.unused, q)
		}
	}
	t.mu.Unlock()
	for _, e := range notified {
		kind := driver.Granted
		if e.Token == 0 {
			kind = driver.Ask
		}
		e.Data.store.notices.Send(driver.Notice{
			Kind: kind, Name: name, Owner: e.Owner, Token: e.Token, Tokens: int(e.Tokens),
		})
	}
}

func (t *lockTable) acquire(s *Store, req *driver.AcquireRequest) (res driver.AcquireResult, err error) {
	if req.Limit > driver.MaxLimit {
		return res, fmt.Errorf("%w: a limit above %d", driver.ErrInvalid, driver.MaxLimit)
	}
	t.update(req.Name, func(q *queue, now time.Duration, c *lockqueue.Counter) []entry {
		own, notices, failure := q.Acquire(lockqueue.Request[holderData]{
			Entry: entry{
				Owner: req.Owner, Limit: int32(max(req.Limit, driver.Shared)),
				Floor: req.Floor, Tokens: int32(min(req.Tokens, driver.MaxTokens)),
				Data: holderData{s, req.Holder, req.Metadata},
			},
			TTL: req.TTL, Queue: req.Queue, Claim: req.Claim,
		}, now, c)
		switch {
		case failure != nil:
			err = failure
			return notices
		case own != nil && own.Token != 0:
			res = driver.AcquireResult{Granted: true, Token: own.Token, Tokens: int(own.Tokens)}
			return notices
		case own != nil:
			res.Queued, res.First = true, own == q.First()
		}
		if oldest := q.Oldest(); oldest != nil {
			res.Held = t.holdRecord(req.Name, oldest, now)
			res.Held.Waiting = waiting(q, now)
		}
		return notices
	})
	return res, err
}

func (t *lockTable) renew(req *driver.RenewRequest) (outcome driver.RenewOutcome) {
	t.update(req.Name, func(q *queue, now time.Duration, c *lockqueue.Counter) []entry {
		own, notices := q.Renew(req.Owner, req.Token, req.TTL, now, c)
		switch {
		case own == nil:
			outcome = driver.RenewLost
		case own.Token == 0:
			outcome = driver.RenewQueued
		default:
			outcome = driver.Renewed
		}
		return notices
	})
	return outcome
}

func (t *lockTable) release(req *driver.ReleaseRequest) (found bool) {
	t.update(req.Name, func(q *queue, now time.Duration, c *lockqueue.Counter) (notices []entry) {
		found, notices = q.Release(req.Owner, req.Keep, now, c)
		return notices
	})
	return found
}

func (t *lockTable) breakHold(req driver.BreakRequest) (rec driver.Record, found bool) {
	t.update(req.Name, func(q *queue, now time.Duration, c *lockqueue.Counter) []entry {
		notices := q.Settle(now, c)
		if q.Oldest() == nil {
			return notices
		}
		waiting := waiting(q, now)
		ended, more := q.Break(req.Token, now, c)
		notices = append(notices, more...)
		if found = len(ended) > 0; !found {
			return notices
		}
		for i := range ended {
			rec = withOther(rec, t.holdRecord(req.Name, &ended[i], now))
		}
		rec.Waiting = waiting
		return notices
	})
	return rec, found
}

func (t *lockTable) lookupRecord(name string) (rec driver.Record, found bool) {
	t.update(name, func(q *queue, now time.Duration, c *lockqueue.Counter) []entry {
		notices := q.Settle(now, c)
		rec = t.recordOf(name, q, now)
		found = rec.Name != ""
		return notices
	})
	return rec, found
}

func (t *lockTable) listRecords(prefix string) []driver.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.monotonicNow()
	var records []driver.Record
	for name, q := range t.names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if rec := t.recordOf(name, q, now); rec.Name != "" {
			records = append(records, rec)
		}
	}
	return records
}

// recordOf describes the holds of a name, without their owners, as clients may see them. The Record
// is zero if there are none.
func (t *lockTable) recordOf(name string, q *queue, now time.Duration) (rec driver.Record) {
	for e := range q.All() {
		if e.Token != 0 && e.Until > now {
			rec = withOther(rec, t.holdRecord(name, e, now))
		}
	}
	if rec.Name != "" {
		rec.Waiting = waiting(q, now)
	}
	return rec
}

// withOther returns first with another hold of the name, or that alone if first is zero.
func withOther(first, other driver.Record) driver.Record {
	if first.Name == "" {
		return other
	}
	first.Others = append(first.Others, other)
	return first
}

// holdRecord describes one hold.
func (t *lockTable) holdRecord(name string, h *entry, now time.Duration) driver.Record {
	rec := driver.Record{
		Name:      name,
		Holder:    h.Data.holder,
		Token:     h.Token,
		Since:     t.created.Add(h.Since).Round(0),
		Until:     t.created.Add(h.Until).Round(0),
		Remaining: h.Until - now,
		Limit:     int(h.Limit),
		Metadata:  h.Data.metadata,
	}
	if h.Kept {
		rec.Holder, rec.Kept, rec.Metadata = "", true, nil
	}
	return rec
}

// waiting returns how many places a name has.
func waiting(q *queue, now time.Duration) (count int) {
	for e := range q.All() {
		if e.Token == 0 && e.Until > now {
			count++
		}
	}
	return count
}

// removeStore is called when a Store over the table is closed. When the last one is
// closed, it deletes the holds, and the table's entry in namedTables.
func (t *lockTable) removeStore() {
	namedTables.Lock()
	defer namedTables.Unlock()
	t.openStores--
	if t.openStores > 0 {
		return
	}
	maps.DeleteFunc(namedTables.byName, func(_ string, other *lockTable) bool { return other == t })
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.names)
}

// sweepEvery and sweepSize pace the removal of expired entries that no request has
// found since: two entries are examined for each grant, so that expired entries cannot
// outnumber those in use for long.
const (
	sweepEvery = 64
	sweepSize  = 128
)

func (t *lockTable) sweepExpired(now time.Duration) {
	t.grants++
	if t.grants%sweepEvery != 0 {
		return
	}
	deleteMatching(t.names, func(q *queue) bool {
		for e := range q.All() {
			if e.Until > now {
				return false
			}
		}
		return true
	})
	deleteMatching(t.tokens.aheadOfCounter, t.tokens.isObsolete)
}

// deleteMatching examines up to sweepSize entries and deletes those that match.
func deleteMatching[V any](entries map[string]V, match func(V) bool) {
	examined := 0
	for name, entry := range entries { // begins at a random place
		if match(entry) {
			delete(entries, name)
		}
		if examined++; examined == sweepSize {
			return
		}
	}
}
