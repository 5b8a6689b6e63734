package lockview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
)

// listStallTimeout is how long a store may take for the next lock of a listing. The whole
// listing may take as long as there are locks.
const listStallTimeout = 10 * time.Second

var errListStalled = fmt.Errorf("%w: no answer for %v", holdfast.ErrUnavailable, listStallTimeout)

// List returns the locks with names that begin with prefix, sorted by name, and the errors
// that occurred. There may be both: a damaged record does not hide the others.
func List(ctx context.Context, client *holdfast.Client, prefix string) ([]Lock, []error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(listStallTimeout, func() { cancel(errListStalled) })
	defer silence.Stop()

	var holds []holdfast.Record
	var errs []error
	for rec, err := range client.List(ctx, prefix) {
		silence.Reset(listStallTimeout)
		switch {
		case err == nil:
			holds = append(holds, rec)
		case errors.Is(context.Cause(ctx), errListStalled):
			errs = append(errs, fmt.Errorf("list: %w", errListStalled))
		default:
			errs = append(errs, err)
		}
	}
	slices.SortStableFunc(holds, func(a, b holdfast.Record) int { return strings.Compare(a.Name, b.Name) })
	var locks []Lock
	for len(holds) > 0 {
		n := slices.IndexFunc(holds, func(rec holdfast.Record) bool { return rec.Name != holds[0].Name })
		if n < 0 {
			n = len(holds)
		}
		locks = append(locks, NewLock(holds[:n]))
		holds = holds[n:]
	}
	return locks, errs
}

// A Snapshot is what a store listed at one moment. Its locks that a failed listing leaves out are
// those of the snapshot before.
type Snapshot struct {
	At    time.Time
	Locks []Lock // sorted by name
	Errs  []error

	// Answered is when the store last listed everything, apart from damaged records, and Took how
	// long that was. Answered is zero if the store never did.
	Answered time.Time
	Took     time.Duration
}

// Take lists the locks with names that begin with prefix. last is the snapshot before.
func Take(ctx context.Context, client *holdfast.Client, prefix string, last *Snapshot) *Snapshot {
	began := time.Now()
	locks, errs := List(ctx, client, prefix)
	s := &Snapshot{At: time.Now(), Locks: locks, Errs: errs, Answered: last.Answered, Took: last.Took}
	if s.Failure() == nil {
		s.Answered, s.Took = s.At, s.At.Sub(began)
	}
	if len(errs) > 0 {
		s.addMissing(ctx, client, last)
	}
	return s
}

// Failure returns the first error that does not concern a single record, nil if there is none.
func (s *Snapshot) Failure() error {
	for _, err := range s.Errs {
		if !errors.Is(err, holdfast.ErrCorrupt) {
			return err
		}
	}
	return nil
}

// staleAfter is how much longer than expected a store may take to answer before what it has listed
// counts as stale.
const staleAfter = 2 * time.Second

// Stale reports whether a store that is listed at intervals has stopped answering, and for how
// long. A listing that takes as long as the last one did, and begins as much later, is no sign of
// silence.
func (s *Snapshot) Stale(now time.Time, interval time.Duration) (age time.Duration, stale bool) {
	age = now.Sub(s.Answered)
	return age, s.Answered.IsZero() || age > interval+2*s.Took+staleAfter
}

// addMissing looks up the locks that were in the last snapshot and are missing from a listing
// that had errors: missing does not mean free. A lock that cannot be looked up counts as
// unchanged.
func (s *Snapshot) addMissing(ctx context.Context, client *holdfast.Client, last *Snapshot) {
	seen := map[string]bool{}
	for _, lock := range s.Locks {
		seen[lock.Name()] = true
	}
	var err error
	for _, lock := range last.Locks {
		if seen[lock.Name()] {
			continue
		}
		if !errors.Is(err, holdfast.ErrUnavailable) { // otherwise the next would fail as well, and take its time
			var now []holdfast.Record
			if now, err = client.Lookup(ctx, lock.Name()); err == nil {
				lock = NewLock(now)
			}
		}
		if !errors.Is(err, holdfast.ErrNotHeld) {
			s.Locks = append(s.Locks, lock)
		}
	}
	slices.SortFunc(s.Locks, func(a, b Lock) int { return strings.Compare(a.Name(), b.Name()) })
}
