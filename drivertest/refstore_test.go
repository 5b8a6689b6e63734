package drivertest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// begin is the start of every call: what ended, what was closed, what is lost.
// If it returns no error the world is locked until end.
func (s *refStore) begin(ctx context.Context) error {
	w := s.w
	w.mu.Lock()
	err := ctx.Err()
	switch {
	case s.closed && !w.has(closeDoesNothing):
		err = driver.ErrClosed
	case err != nil && w.has(ignoresContexts):
		err = nil
	case err == nil && s.fault == RequestLost:
		err, s.fault = errLink, 0
	case err == nil && (s.dead || w.broken):
		err = errLink
	}
	hangs := s.closed && w.has(closedCallsHang) || err == nil && s.silent
	if err != nil || hangs {
		w.mu.Unlock()
	}
	if hangs {
		<-ctx.Done()
		err = ctx.Err()
		if w.has(callsOutlastDeadlines) || w.has(callsOutlastCancelling) && errors.Is(err, context.Canceled) {
			time.Sleep(time.Minute)
		}
	}
	return err
}

// end is the end of every call that began. It returns the error of a call whose
// answer was lost.
func (s *refStore) end() error {
	w := s.w
	defer w.mu.Unlock()
	if s.fault != ReplyLost {
		return nil
	}
	s.fault = 0
	if w.has(saysNotApplied) {
		return fmt.Errorf("%w: %w", driver.ErrNotApplied, errLink)
	}
	return errLink
}

// now is the store's clock.
func (s *refStore) now() time.Time {
	if s.w.has(clientClock) {
		return time.Now().Add(s.skew)
	}
	return time.Now()
}

// at returns the entry of a name that is held or kept.
func (s *refStore) at(name string) *entry {
	e := s.w.entries[s.w.key(name)]
	if e == nil || !s.now().Before(e.until) && !s.w.has(neverExpires) {
		return nil
	}
	return e
}

// key is how a name is stored.
func (w *world) key(name string) string {
	switch {
	case w.has(foldsCase):
		return strings.ToLower(name)
	case w.has(truncatesNames) && len(name) > 200:
		return name[:200]
	case w.has(hashesNames):
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(name))
		return strconv.Itoa(int(hash.Sum32() & 0xffff))
	case w.has(trimsNames):
		return strings.TrimRight(name, ". ")
	}
	return name
}

// owns compares owners.
func (w *world) owns(e *entry, owner string) bool {
	switch {
	case w.has(comparesPrefix):
		return strings.HasPrefix(owner, e.owner[:8])
	case w.has(comparesFolded):
		return strings.EqualFold(owner, e.owner)
	}
	return e.owner == owner
}

// expiry is when a hold or keep of this length ends.
func (s *refStore) expiry(ttl time.Duration) time.Time {
	switch {
	case s.w.has(expiresEarly):
		ttl -= 5 * time.Millisecond
	case s.w.has(expiresLate):
		ttl += 2 * time.Second
	case s.w.has(roundsToSeconds):
		ttl = (ttl + time.Second - 1).Truncate(time.Second)
	}
	return s.now().Add(ttl)
}

// record is what is shown of an entry.
func (s *refStore) record(e *entry) driver.Record {
	rec := e.record
	rec.Until, rec.Remaining = e.until, e.until.Sub(s.now())
	if s.w.has(underclaimsRemaining) {
		rec.Remaining += time.Hour
	}
	return rec
}
