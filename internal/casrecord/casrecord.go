// Package casrecord keeps locks where all that can be done is to replace an object if it has not
// changed: in an object store, for instance.
//
// A name has one object, a record with the entries of its queue. Each verb reads the record, applies
// the rule of package lockqueue, and writes the record if its object is unchanged. If it has
// changed, the verb begins anew. So what a verb has found is true at the moment of its write. A verb
// begins with the record that this store has seen last, and reads it anew unless its write succeeds.
//
// No clock is shared. An entry lasts for its time from when a store sees it, or its latest renewal,
// for the first time. That is after the write, so no store ends an entry sooner than its owner
// expects. A store that looks at a name for the first time waits for the whole time of an entry
// whose owner may have died long ago. One that has waited for the name sees the end within
// [driver.Guarantees] Grain. Clocks may differ in speed by what [driver.Validity] allows.
//
// The record of a free name stays, since it has the greatest token. A write changes the number of
// writes in the record, so that no content occurs twice, and a late write finds its version gone.
package casrecord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Objects are what keeps the records. Every method is bounded by its ctx.
type Objects interface {
	// Get returns an object and its version, which is "" if there is no object.
	Get(ctx context.Context, name string) (value []byte, version string, err error)

	// Put writes an object if its version is still the given one, and returns the new one. With ""
	// it writes if there is no object. If the version is another one it returns ErrChanged. After
	// any other error the write may have happened, or may still happen, unless the error matches
	// driver.ErrNotApplied. Put sends one request, since a second one finds what the first has done.
	Put(ctx context.Context, name string, value []byte, version string) (newVersion string, err error)

	// List yields the names of the objects that begin with prefix.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// ErrChanged is the error of a Put whose object has another version.
var ErrChanged = errors.New("the object has changed")

const (
	grain    = 2 * time.Second       // how late a store that waits may see the end of an entry
	maxPause = 50 * time.Millisecond // for each entry, before a verb begins anew
	maxNames = 1 << 14               // of which a store remembers what it has seen
)

// A Store is a [driver.Store] over Objects.
type Store struct {
	objects    Objects
	guarantees driver.Guarantees
	created    time.Time
	closed     atomic.Bool

	mu    sync.Mutex
	names map[string]*sighting
}

var _ driver.Store = (*Store)(nil)

// New returns a store over objects. Of the guarantees, the caller sets Store, Restart and Failover.
func New(objects Objects, g driver.Guarantees) *Store {
	g.Fencing, g.Queue, g.Limits, g.Keep = true, true, true, true
	g.Tokens, g.Grain, g.Crash = driver.MaxTokens, grain, driver.FateKept
	return &Store{objects: objects, guarantees: g, created: time.Now(), names: map[string]*sighting{}}
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	err = s.update(ctx, req.Name, func(q *queue, now time.Duration) error {
		wall := time.Now()
		q.counter.Clock = wall.UnixMicro()
		data := data{entry: entry{Holder: req.Holder, Since: wall.UnixMicro(), Metadata: req.Metadata}}
		own, _, err := q.Acquire(&req, data, now, &q.counter)
		res = driver.Result{
			Granted: own.State == driver.Held, Waiting: own.State == driver.Waiting, Token: own.Token,
		}
		if err == nil && !res.Granted {
			res.Held = q.describe(req.Name, q.Holds()[0], now)
		}
		return err
	})
	if err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

// Renew implements [driver.Store]. It writes the records of several names at once.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	ofName := map[string][]int{}
	for i, req := range reqs {
		ofName[req.Name] = append(ofName[req.Name], i)
	}
	entries, errs := make([]driver.Entry, len(reqs)), make(chan error, len(ofName))
	for name, of := range ofName {
		go func() {
			found := make([]driver.Entry, len(of))
			err := s.update(ctx, name, func(q *queue, now time.Duration) error {
				for i, n := range of {
					found[i] = q.renew(reqs[n], now)
				}
				return nil
			})
			if err == nil {
				for i, n := range of {
					entries[n] = found[i]
				}
			}
			errs <- err
		}()
	}
	var err error
	for range ofName {
		if e := <-errs; e != nil && err == nil {
			err = e
		}
	}
	return entries, err
}

// Release implements [driver.Store]. It always writes: the write of an Acquire of this owner that is
// still on its way then finds its version gone.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (found bool, err error) {
	err = s.update(ctx, req.Name, func(q *queue, now time.Duration) error {
		found, _ = q.Release(req.Owner, req.Keep, now)
		q.urgent = true
		return nil
	})
	return found && err == nil, err
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) (records []driver.Record, err error) {
	err = s.update(ctx, name, func(q *queue, now time.Duration) error {
		ended, promoted := q.Break(token, now)
		records = nil
		for i := range ended {
			rec := q.describe(name, &ended[i], now)
			rec.Waiting += len(promoted)
			records = append(records, rec)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (records []driver.Record, err error) {
	seen, err := s.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	defer seen.leave()
	if err := s.read(ctx, name, seen); err != nil {
		return nil, err
	}
	now := time.Since(s.created)
	q := seen.queue()
	q.Settle(now)
	for _, e := range q.Holds() {
		records = append(records, q.describe(name, e, now))
	}
	return records, nil
}

// List implements [driver.Store]. It reads the object of every name.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if s.closed.Load() {
			yield(driver.Record{}, driver.ErrClosed)
			return
		}
		for name, err := range s.objects.List(ctx, prefix) {
			if err != nil {
				yield(driver.Record{}, driver.NotApplied(err))
				return
			}
			records, err := s.Lookup(ctx, name)
			if err != nil && (!yield(driver.Record{}, err) || !errors.Is(err, driver.ErrCorrupt)) {
				return
			}
			for _, rec := range records {
				if !yield(rec, nil) {
					return
				}
			}
		}
	}
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees { return s.guarantees }

// Close implements [driver.Store].
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// update carries out a verb on a name: it writes what the verb has changed. The verb is called
// again, with another queue, as often as the object has changed meanwhile. What changes nothing, a
// refusal for instance, is answered from a record that was read during the call. The more entries
// there are, the longer a place pauses before it begins anew: a hold does not, nor does a release,
// so that many waiters do not keep a hold from being renewed.
func (s *Store) update(ctx context.Context, name string, verb func(*queue, time.Duration) error) error {
	seen, err := s.enter(ctx, name)
	if err != nil {
		return err
	}
	defer seen.leave()
	current, contended := false, false
	for {
		if !seen.known {
			err := s.read(ctx, name, seen)
			if err != nil && contended && ctx.Err() != nil {
				return &driver.RetryError{Err: fmt.Errorf("others have changed the object each time: %w", ctx.Err())}
			}
			if err != nil {
				return err
			}
			current = true
		}
		now := time.Since(s.created)
		q := seen.queue()
		refused := verb(q, now)
		next, changed := q.record(seen.record, now)
		if !changed || refused != nil {
			if current {
				return refused
			}
			seen.known = false
			continue
		}
		value, err := json.Marshal(next)
		if err != nil {
			return driver.NotApplied(err)
		}
		version, err := s.objects.Put(ctx, name, value, seen.version)
		if err == nil {
			seen.see(next, version, time.Since(s.created))
			return nil
		}
		if !errors.Is(err, ErrChanged) {
			return err
		}
		contended = contended || current
		seen.known, current = false, false
		if !contended || q.urgent {
			continue // What was seen before the call was old, or the holder is to be in front.
		}
		timer := time.NewTimer(rand.N(maxPause * time.Duration(q.Len()+1)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// read reads the record of a name. The caller has entered the name.
func (s *Store) read(ctx context.Context, name string, seen *sighting) error {
	value, version, err := s.objects.Get(ctx, name)
	if err != nil {
		return driver.NotApplied(err)
	}
	rec, err := decode(name, value)
	if err != nil {
		return err
	}
	seen.see(rec, version, time.Since(s.created))
	return nil
}

// enter waits until no other call of this store is at work on the name: they would only change the
// object for each other. A name that is forgotten may have two calls, and its entries may last for
// their time once more.
func (s *Store) enter(ctx context.Context, name string) (*sighting, error) {
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, driver.NotApplied(err)
	}
	s.mu.Lock()
	seen := s.names[name]
	if seen == nil {
		for other := range s.names {
			if len(s.names) < maxNames {
				break
			}
			delete(s.names, other)
		}
		seen = &sighting{turn: make(chan struct{}, 1)}
		s.names[name] = seen
	}
	s.mu.Unlock()
	select {
	case seen.turn <- struct{}{}:
		return seen, nil
	case <-ctx.Done():
		return nil, driver.NotApplied(ctx.Err())
	}
}

func (s *sighting) leave() { <-s.turn }
