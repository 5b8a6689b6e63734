package filestore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

const (
	// tolerantFormat is the number of a record with shared and limited holds. Versions that have
	// none refuse such a record: to them it is corrupt, and neither free nor held.
	tolerantFormat = 2

	// maxHolds and holdsLimit bound the holds of a name, and the length of their lines.
	maxHolds   = 10_000
	holdsLimit = 4 << 20
)

// tolerantHolds are the shared and limited holds of a name, and the keeps after such holds. The
// record of the name is then a line about the name, with this object in it, followed by one line
// for each hold: a record without the fields that all of them have in common.
//
// If that is longer than a page, the lines of the holds are behind the page. They are written first,
// to a place that no page points to. The page that points to them follows by one write, so that the
// whole is there or nothing is. What is behind the page is not read after a reboot: the holds are
// void then, and a power loss may have damaged them.
type tolerantHolds struct {
	// Waiter is the SHA-256 of the secret of an owner that these holds are in the way of. No other
	// owner is granted the name until the uptime WaitsUntil, or the end of the process of
	// WaiterSession.
	Waiter        string        `json:"waiter_sha256,omitempty"`
	WaitsUntil    time.Duration `json:"waiter_expires_ns,omitempty"`
	WaiterSession string        `json:"waiter_session,omitempty"`

	// At is where the lines of the holds are in the file, 0 if they are in the page. Size is how
	// long they are, and Sum their CRC-32.
	At   int64  `json:"at,omitempty"`
	Size int64  `json:"size"`
	Sum  uint32 `json:"crc32"`

	holds []*record // oldest first
}

// entryOf returns the hold of an owner, or the keep after it, or nil if the owner has neither or it
// has expired.
func (r *record) entryOf(owner string, h *host) *record {
	if r.Tolerant == nil {
		if r.ownedBy(owner) && r.isUnexpired(h) {
			return r
		}
		return nil
	}
	hash := ownerHash(owner)
	for _, e := range r.Tolerant.holds {
		if e.Owner == hash && e.isUnexpired(h) {
			return e
		}
	}
	return nil
}

// with returns the record of the name after a change of r. The entry old of r becomes after. A nil
// old adds an entry, and a nil after ends one. Entries that are over are dropped. An exclusive hold
// is the only entry.
func (r *record) with(old, after *record, h *host) record {
	switch {
	case after != nil && after.Limit == 0:
		return *after
	case after == nil && r.Tolerant == nil:
		return r.freed()
	}
	next := record{Name: r.Name, State: stateHeld, Token: r.lastToken(), Boot: h.boot, Tolerant: &tolerantHolds{}}
	if after != nil {
		next.Name, next.Token = after.Name, max(next.Token, after.lastToken())
	}
	if t := r.Tolerant; t != nil {
		now := h.frozen()
		next.Tolerant.holds = make([]*record, 0, len(t.holds)+1)
		for _, e := range t.holds {
			switch {
			case e == old && after != nil:
				next.Tolerant.holds = append(next.Tolerant.holds, after)
			case e != old && e.isUnexpired(now):
				next.Tolerant.holds = append(next.Tolerant.holds, e)
			}
		}
		if r.hasWaiter(h) {
			next.setWaiter(t.Waiter, t.WaitsUntil, t.WaiterSession)
		}
	}
	if after != nil && (old == nil || r.Tolerant == nil) {
		next.Tolerant.holds = append(next.Tolerant.holds, after)
	}
	if len(next.Tolerant.holds) == 0 {
		if next.Tolerant.Waiter == "" {
			return next.freed()
		}
		next.State = stateFree
	}
	return next
}

// setWaiter makes an owner the waiter in the record. With "" as hash the record has none.
func (r *record) setWaiter(hash string, until time.Duration, session string) {
	r.Tolerant.Waiter, r.Tolerant.WaitsUntil, r.Tolerant.WaiterSession = hash, until, session
}

// hasWaiter reports whether the record has a waiter that has not expired. Its process may be dead.
func (r *record) hasWaiter(h *host) bool {
	t := r.Tolerant
	return t != nil && t.Waiter != "" && r.Boot == h.boot && h.uptime() < t.WaitsUntil
}

// isWaiter reports whether an owner is the waiter in the record.
func (r *record) isWaiter(owner string, h *host) bool {
	return r.hasWaiter(h) && r.Tolerant.Waiter == ownerHash(owner)
}

// deathProbe returns a function like isSessionDead that examines each session once.
func (s *engine) deathProbe() func(id string) bool {
	var known map[string]bool
	return func(id string) bool {
		dead, found := known[id]
		if !found {
			if known == nil {
				known = map[string]bool{}
			}
			dead = s.isSessionDead(id)
			known[id] = dead
		}
		return dead
	}
}

// liveHolds returns the holds and keeps of a name, without those of dead processes.
func (s *engine) liveHolds(r *record) (live []*record) {
	if r.Tolerant == nil {
		if s.isHeld(r) {
			live = append(live, r)
		}
		return live
	}
	now, isDead := s.host.frozen(), s.deathProbe()
	for _, e := range r.Tolerant.holds {
		if e.isUnexpired(now) {
			if e.endIfDead(isDead); e.State != stateFree {
				live = append(live, e)
			}
		}
	}
	return live
}

// endIfDead ends a hold of a dead process: it is dropped when its record is written.
func (r *record) endIfDead(isDead func(session string) bool) {
	if r.State == stateHeld && isDead(r.Session) {
		r.State = stateFree
	}
}

// endDead ends the holds of dead processes in r, and removes a waiter whose process is dead. It
// reports whether it changed r.
func (s *engine) endDead(r *record) (found bool) {
	now, isDead := s.host.frozen(), s.deathProbe()
	for _, e := range r.Tolerant.holds {
		if e.isUnexpired(now) {
			e.endIfDead(isDead)
			found = found || e.State == stateFree
		}
	}
	if r.hasWaiter(&s.host) && isDead(r.Tolerant.WaiterSession) {
		r.setWaiter("", 0, "")
		found = true
	}
	return found
}

// describeHolds describes the holds and keeps of a name, oldest first.
func (s *engine) describeHolds(holds []*record) (rec olddriver.Record) {
	for i, e := range holds {
		if i == 0 {
			rec = e.publicRecord(&s.host)
		} else {
			rec.Others = append(rec.Others, e.publicRecord(&s.host))
		}
	}
	return rec
}

// A refusal is why an owner that holds nothing is not granted a name.
type refusal int

const (
	notRefused refusal = iota
	byHolds
	byTolerantHolds
	byWaiter // of another owner
)

// refusalOf returns why a request of an owner without a hold is refused. It looks for dead processes
// only if the request would be refused without that, and ends their holds in r.
func (s *engine) refusalOf(r *record, req *olddriver.AcquireRequest) refusal {
	t := r.Tolerant
	if t == nil {
		if s.isHeld(r) {
			return byHolds
		}
		return notRefused
	}
	if r.hasWaiter(&s.host) && !r.isWaiter(req.Owner, &s.host) {
		if !s.isSessionDead(t.WaiterSession) {
			return byWaiter
		}
		r.setWaiter("", 0, "")
	}
	noneDead := func(string) bool { return false }
	if !s.isInTheWay(t.holds, req, noneDead) || !s.isInTheWay(t.holds, req, s.deathProbe()) {
		return notRefused
	}
	return byTolerantHolds
}

// isInTheWay reports whether some of the holds exclude a request. It ends the holds of each session
// that isDead reports.
func (s *engine) isInTheWay(
	holds []*record, req *olddriver.AcquireRequest, isDead func(session string) bool,
) bool {
	hash, slots := ownerHash(req.Owner), 1
	now := s.host.frozen()
	for _, e := range holds {
		own := e.State == stateKept && e.Owner == hash
		if !own && req.Limit != 0 && (req.Limit < 0 || e.Limit < 0) || !e.isUnexpired(now) {
			continue
		}
		if e.endIfDead(isDead); e.State == stateFree {
			continue
		}
		slots++
		if own || req.Limit == 0 || slots > req.Limit {
			return true
		}
	}
	return false
}

// holdInTheWay describes the oldest hold of a name. If there is none, the waiter in the record is in
// the way, and the result is only how long it may stay there.
func (s *engine) holdInTheWay(r *record) olddriver.Record {
	if r.Tolerant == nil {
		return r.publicRecord(&s.host)
	}
	for _, e := range r.Tolerant.holds {
		if !e.isUnexpired(&s.host) {
			continue
		}
		if e.endIfDead(s.isSessionDead); e.State != stateFree {
			return e.publicRecord(&s.host)
		}
	}
	left := max(r.Tolerant.WaitsUntil-s.host.uptime(), 0)
	return olddriver.Record{Name: r.Name, Until: s.host.wall().Add(left), Remaining: left}
}

// mustRecordWaiter reports whether the owner of a refused request must be written into the record as
// the waiter. Waiters repeat their requests often. So the time of one that is recorded already is
// prolonged only when less than half of it is left.
func (s *engine) mustRecordWaiter(r *record, req *olddriver.AcquireRequest, why refusal) bool {
	if why != byTolerantHolds || req.Queue <= 0 {
		return false
	}
	return !r.isWaiter(req.Owner, &s.host) || r.Tolerant.WaitsUntil-s.host.uptime() < req.Queue/2
}

// encodeTolerant returns the page of r, followed by spaces up to size bytes. If the holds do not fit
// into it, encodeTolerant also returns the lines to be written behind the page. Their place does not
// overlap with that of before, the holds in the file now.
func (r *record) encodeTolerant(size int, before *tolerantHolds) (page, behind []byte, err error) {
	t := r.Tolerant
	lines := make([]byte, 0, 400*len(t.holds))
	for _, e := range t.holds {
		if e.line == "" {
			line := *e
			line.Format, line.Name, line.After, line.Until, line.Boot = tolerantFormat, "", 0, "", ""
			line.setMetadata(e.metadata())
			e.line = string(encodeJSON(&line, 0)) + "\n"
			if len(e.line) > recordLimit {
				return nil, nil, fmt.Errorf("%w: holder and metadata need %d bytes of the record, and %d is the limit",
					driver.ErrInvalid, len(e.line), recordLimit)
			}
		}
		lines = append(lines, e.line...)
	}
	if len(t.holds) > maxHolds || len(lines) > holdsLimit {
		return nil, nil, fmt.Errorf("%w: the name has %d holds, which need %d bytes: the limits are %d and %d",
			driver.ErrInvalid, len(t.holds), len(lines), maxHolds, holdsLimit)
	}
	r.Format = tolerantFormat
	t.At, t.Size, t.Sum = 0, int64(len(lines)), crc32.ChecksumIEEE(lines)
	page = append(encodeJSON(r, recordLimit), '\n')
	if len(page)+len(lines) <= recordLimit {
		page = append(page, lines...)
	} else {
		t.At, behind, size = recordLimit, lines, recordLimit
		if before != nil && before.At != 0 && before.At < recordLimit+t.Size {
			t.At = before.At + before.Size
		}
		page = append(encodeJSON(r, recordLimit), '\n')
	}
	return padded(page, size), behind, nil
}

// padded returns line followed by spaces up to size bytes.
func padded(line []byte, size int) []byte {
	for len(line) < size {
		line = append(line, ' ')
	}
	return line
}

// readHolds reads the holds that are behind the page of r in its file.
func (r *record) readHolds(f *os.File, h *host) error {
	if r.Tolerant == nil || r.Tolerant.At == 0 || r.Boot != h.boot {
		return nil
	}
	lines := make([]byte, r.Tolerant.Size)
	if _, err := f.ReadAt(lines, r.Tolerant.At); err != nil {
		if errors.Is(err, io.EOF) {
			return errNotWhole
		}
		return err
	}
	return r.parseHolds(lines)
}

var errNotWhole = errors.New("its holds are not whole")

// parseHolds sets the holds of r from the lines of its file after the first.
func (r *record) parseHolds(data []byte) error {
	t := r.Tolerant
	if int64(len(data)) != t.Size || crc32.ChecksumIEEE(data) != t.Sum {
		return errNotWhole
	}
	text := string(data)
	lines := strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1
	if lines > maxHolds {
		return fmt.Errorf("it has more than %d holds", maxHolds)
	}
	records := make([]record, lines)
	t.holds = make([]*record, 0, len(records))
	last := int64(0)
	for line := range strings.Lines(text) {
		e := &records[len(t.holds)]
		t.holds = append(t.holds, e)
		if err := e.parse(strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
		switch {
		case e.Format != tolerantFormat || e.Tolerant != nil || e.Name != "" || e.State != stateHeld && e.State != stateKept:
			return errNotRecord
		case e.Token <= last || e.lastToken() > r.Token:
			return errors.New("the token of a hold is out of range")
		case e.Limit < olddriver.Shared || e.Limit == 0 || e.Limit > olddriver.MaxLimit:
			return errors.New("the limit of a hold is out of range")
		}
		if err := e.validateFields(); err != nil {
			return err
		}
		last = e.lastToken()
		e.Name, e.Boot, e.line = r.Name, r.Boot, line
	}
	return nil
}

// validateTolerant checks the fields of a record with such holds.
func (r *record) validateTolerant() error {
	t := r.Tolerant
	switch {
	case t == nil || r.Format != tolerantFormat:
		return errNotRecord
	case t.Size < 0 || t.Size > holdsLimit:
		return fmt.Errorf("its holds are longer than the %d bytes of any", holdsLimit)
	case t.At != 0 && (t.At < recordLimit || t.At > recordLimit+2*holdsLimit):
		return errors.New("its holds are not in their place")
	case t.WaiterSession != "" && !isSessionID(t.WaiterSession):
		return errSessionName
	}
	return nil
}
