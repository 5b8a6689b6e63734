package pgstore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Release implements [driver.Store]. The waiters for the name are notified by another statement,
// afterwards.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := pgclient.CheckOwner(req.Owner); err != nil {
		return false, err
	}
	ended, hasWaiters, err := s.release(ctx, &req)
	if err != nil {
		return false, err
	}
	if ended && req.Keep == 0 {
		s.nameCache.setFree(req.Name)
	}
	if ended && hasWaiters {
		s.notifyReleased(req.Name)
	}
	return ended, nil
}

func (s *Store) release(ctx context.Context, req *driver.ReleaseRequest) (ended, hasWaiters bool, err error) {
	keep, commit := int64(0), s.options.SynchronousCommit
	switch {
	case req.Keep > 0: // Others rely later on the name being kept.
		keep = ceilMicros(req.Keep)
	case s.options.DurableRelease:
	case s.unprepared.Load():
		commit = "off"
	default:
		return s.releaseBatched(ctx, req.Name, req.Owner)
	}
	err = s.queryRow(ctx, s.queries.release, []any{req.Name, req.Owner, keep, commit}, &ended, &hasWaiters)
	return ended, hasWaiters, err
}

// releaseBatched ends a hold, on its own or in a batch, and does not wait for the disk.
func (s *Store) releaseBatched(ctx context.Context, name, owner string) (ended, hasWaiters bool, err error) {
	change := &rowChange{name: name, owner: owner}
	if err := s.makeChange(ctx, change); err != nil {
		return false, false, err
	}
	if change.decided {
		return change.applied, change.hasWaiters, change.err
	}
	return s.releaseAlone(ctx, name, owner)
}

func (s *Store) releaseAlone(ctx context.Context, name, owner string) (ended, hasWaiters bool, err error) {
	var level string
	ended, err = s.queryOptional(ctx, s.queries.releaseOne, []any{name, owner}, &hasWaiters, &level)
	return ended, hasWaiters, err
}
