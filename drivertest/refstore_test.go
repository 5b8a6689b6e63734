package drivertest

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// begin is the start of every call: what ended, what was closed, what is lost.
// If it returns no error the model is locked until end.
func (s *refStore) begin(ctx context.Context) error {
	m := s.model
	m.mu.Lock()
	err := ctx.Err()
	switch {
	case s.closed && !m.has("close does nothing"):
		err = driver.ErrClosed
	case err != nil && m.has("ignores contexts"):
		err = nil
	case err == nil && s.fault == RequestLost:
		err, s.fault = errLink, 0
	case err == nil && (s.dead || m.broken):
		err = errLink
	}
	hangs := s.closed && m.has("closed calls hang") || err == nil && s.silent
	if err != nil || hangs {
		m.mu.Unlock()
	}
	if hangs {
		<-ctx.Done()
		err = ctx.Err()
		if m.has("calls outlast deadlines") {
			time.Sleep(time.Minute)
		}
	}
	return err
}

// end is the end of every call that began. It returns the error of a call whose
// answer was lost.
func (s *refStore) end() error {
	m := s.model
	defer m.mu.Unlock()
	if s.fault != ReplyLost {
		return nil
	}
	s.fault = 0
	if m.has("says not applied") {
		return fmt.Errorf("%w: %w", driver.ErrNotApplied, errLink)
	}
	return errLink
}

// now is the store's clock.
func (s *refStore) now() time.Time {
	if s.model.has("client clock") {
		return time.Now().Add(s.skew)
	}
	return time.Now()
}

// at returns the entry of a name that is held or kept.
func (s *refStore) at(name string) *entry {
	e := s.model.entries[s.model.key(name)]
	if e == nil || e.stranger && s.model.has("occupied is granted") || !s.now().Before(e.until) && !s.model.has("never expires") {
		return nil
	}
	return e
}

// key is how a name is stored.
func (m *model) key(name string) string {
	switch {
	case m.has("folds case"):
		return strings.ToLower(name)
	case m.has("truncates names") && len(name) > 200:
		return name[:200]
	case m.has("hashes names"):
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(name))
		return strconv.Itoa(int(hash.Sum32() & 0xffff))
	case m.has("trims names"):
		return strings.TrimRight(name, ". ")
	}
	return name
}

// owns compares owners.
func (m *model) owns(e *entry, owner string) bool {
	switch {
	case m.has("compares prefix"):
		return strings.HasPrefix(owner, e.owner[:min(8, len(e.owner))])
	case m.has("compares folded"):
		return strings.EqualFold(owner, e.owner)
	}
	return e.owner == owner
}

// expiry is when a hold or keep of this length ends.
func (s *refStore) expiry(ttl time.Duration) time.Time {
	ttl += s.model.claims.Grain
	switch {
	case s.model.has("coarse ends early"):
		ttl -= s.model.claims.Grain + 5*time.Millisecond
	case s.model.has("expires early"):
		ttl -= 5 * time.Millisecond
	case s.model.has("expires late"):
		ttl += 2 * time.Second
	case s.model.has("rounds to seconds"):
		ttl = (ttl + time.Second - 1).Truncate(time.Second)
	}
	return s.now().Add(ttl)
}

// record is what is shown of an entry.
func (s *refStore) record(e *entry) driver.Record {
	rec := e.record
	rec.Until, rec.Remaining = e.until, e.until.Sub(s.now())
	for _, place := range s.model.places[s.model.key(rec.Name)] {
		if s.now().Before(s.model.epoch.Add(place.Until)) {
			rec.Waiting++
		}
	}
	if s.model.has("waiting counts hold") && rec.Waiting > 0 {
		rec.Waiting++
	}
	if e.stranger && !s.model.has("occupied is shown") {
		rec.Holder = ""
	}
	if most := 100 * driver.MaxTTL; rec.Remaining > most && !s.model.has("occupied has no bounds") {
		rec.Until, rec.Remaining = s.now().Add(most), most
	}
	if s.model.has("underclaims remaining") {
		rec.Remaining += time.Hour
	}
	return rec
}
