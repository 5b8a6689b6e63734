package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Release implements [olddriver.Store]. The waiters for the name are notified by another statement,
// after the commit.
func (s *engine) Release(ctx context.Context, req olddriver.ReleaseRequest) (bool, error) {
	if err := pgclient.CheckOwner(req.Owner); err != nil {
		return false, err
	}
	state := s.nameCache.lastState(req.Name)
	if req.Keep == 0 && !s.unprepared.Load() && state != stateContended {
		change := &rowChange{name: req.Name, owner: req.Owner}
		if err := s.makeChange(ctx, change); err != nil {
			return false, err
		}
		if change.decided {
			if change.applied {
				s.nameCache.set(req.Name, stateFree, 0)
			}
			return change.applied, change.err
		}
		if state == stateHeld {
			state = stateContended // or lost
		}
	}
	return s.releaseInFull(ctx, &req, state == stateContended)
}

// releaseInFull ends a hold or a place by the function. If the name is contended, the statement
// that notifies its waiters follows in the same round trip.
func (s *engine) releaseInFull(ctx context.Context, req *olddriver.ReleaseRequest, contended bool) (bool, error) {
	var ended, hasWaiters, notify, notified bool
	keep := int64(0)
	if req.Keep > 0 {
		keep = ceilMicros(req.Keep)
	}
	args := []any{req.Name, req.Owner, keep}
	err := s.queryOnConn(ctx, func(ctx context.Context, c conn, unprepared bool) (err error) {
		if contended && !unprepared {
			notified, err = s.releaseAndNotify(ctx, c.rawConn(), req.Name, args, &ended, &hasWaiters, &notify)
			return err
		}
		return c.query(ctx, unprepared, s.queries.release, args, func(scan scanner) error { return scan(&ended, &hasWaiters, &notify) })
	})
	if err != nil {
		return false, err
	}
	switch {
	case hasWaiters || notify:
		s.nameCache.set(req.Name, stateContended, 0)
	case ended && keep == 0:
		s.nameCache.set(req.Name, stateFree, 0)
	default:
		s.nameCache.set(req.Name, stateUnknown, 0)
	}
	if notify && !notified {
		s.notifyWaiters(req.Name)
	}
	return ended, nil
}

// releaseAndNotify sends two statements at once, each a transaction of its own. notified reports
// whether the second succeeded: serializable transactions may be undone.
func (s *engine) releaseAndNotify(ctx context.Context, conn *pgx.Conn, name string, args []any, results ...*bool) (notified bool, err error) {
	var params [][]byte
	for _, arg := range args {
		params = append(params, fmt.Append(nil, arg))
	}
	pipeline := conn.PgConn().StartPipeline(ctx)
	pipeline.SendQueryParams(s.queries.release, params, nil, nil, nil)
	pipeline.SendPipelineSync()
	pipeline.SendQueryParams(s.queries.notify, [][]byte{[]byte(arrayLiteral([]string{name}))}, nil, nil, nil)
	err = pipeline.Sync()
	var reply any
	if err == nil {
		reply, err = pipeline.GetResults()
	}
	if err == nil {
		result := reply.(*pgconn.ResultReader).Read()
		if err = result.Err; err == nil && len(result.Rows) == 1 {
			for i, value := range result.Rows[0] {
				*results[i] = string(value) == "t"
			}
		}
	}
	if err == nil {
		_, err = pipeline.GetResults() // the commit
	}
	notifyErr := pipeline.Close()
	return err == nil && notifyErr == nil, err
}
