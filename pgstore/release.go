package pgstore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store]. Those who wait for the name are told of it
// by another statement, afterwards.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := checkOwner(req.Owner); err != nil {
		return false, err
	}
	ended, awaited, err := s.release(ctx, &req)
	if err != nil {
		return false, err
	}
	if ended && req.Keep == 0 {
		s.seen.free(req.Name)
	}
	if ended && awaited {
		s.tell(req.Name)
	}
	return ended, nil
}

func (s *Store) release(ctx context.Context, req *driver.ReleaseRequest) (ended, awaited bool, err error) {
	keep, commit := int64(0), s.options.SynchronousCommit
	switch {
	case req.Keep > 0: // It is relied on later that the name is kept.
		keep = micros(req.Keep)
	case s.options.DurableRelease:
	case s.plain.Load():
		commit = "off"
	default:
		return s.releaseFast(ctx, req.Name, req.Owner)
	}
	err = s.one(ctx, s.text.release, []any{req.Name, req.Owner, keep, commit}, &ended, &awaited)
	return ended, awaited, err
}

// releaseFast ends a hold, alone or together with other releases, and does not
// wait for the disk. What goes together waits for no row, so that one which
// somebody has locked holds up no other lock, and no two batches wait for each
// other; what a batch has certainly left as it was is then tried alone, which
// finds out why.
func (s *Store) releaseFast(ctx context.Context, name, owner string) (ended, awaited bool, err error) {
	l, leave := s.leaving.enter(name, owner)
	if l == nil {
		defer leave()
		return s.releaseAlone(ctx, name, owner)
	}
	ended, awaited, err = s.leaving.wait(ctx, l)
	if err == nil && !ended || driver.NotApplied(err) {
		return s.releaseAlone(ctx, name, owner)
	}
	return ended, awaited, err
}

func (s *Store) releaseAlone(ctx context.Context, name, owner string) (ended, awaited bool, err error) {
	var level string
	ended, err = s.maybe(ctx, s.text.fastRelease, []any{name, owner}, &awaited, &level)
	return ended, awaited, err
}

// releaseTogether ends holds by one statement, and notes which it has ended.
func (s *Store) releaseTogether(batch []*leaver) error {
	ctx, cancel := context.WithTimeout(s.ctx, gatherBound)
	defer cancel()
	names, owners := make([]string, len(batch)), make([]string, len(batch))
	for i, l := range batch {
		names[i], owners[i] = l.name, l.owner
	}
	awaited := make(map[int64]bool, len(batch)) // of those that were ended
	err := s.ask(ctx, s.text.releaseMany, []any{array(names), array(owners)}, func() { clear(awaited) }, func(scan scanner) error {
		var place int64
		var mark bool
		var level string
		err := scan(&place, &mark, &level)
		awaited[place] = mark
		return err
	})
	if err != nil {
		return err
	}
	for i, l := range batch {
		l.awaited, l.ended = awaited[int64(i+1)] // They are counted from one.
	}
	return nil
}
