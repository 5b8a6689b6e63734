package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	c, err := s.acquireCall(&req)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	cancelled, _ := driver.Ends(ctx)
	reply, err := s.do(ctx, req.Patient || cancelled == nil, c)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	return granted(req.Name, reply)
}

func (s *Store) acquireCall(req *driver.AcquireRequest) (*call, error) {
	if err := checkOwner(req.Owner); err != nil {
		return nil, err
	}
	public, err := public(req)
	if err != nil {
		return nil, err
	}
	c := s.ownerCall(acquireScript, req.Name, req.Owner, millis(req.TTL))
	c.floor, c.public = req.Floor, public
	return c, nil
}

// granted reads the answer of the acquire script.
func granted(name string, reply any) (driver.AcquireResult, error) {
	switch reply := reply.(type) {
	case int64:
		return driver.AcquireResult{Granted: true, Token: reply}, nil
	case []any:
		if len(reply) == 2 && reply[0] == "abstains" {
			left, _ := reply[1].(int64)
			return driver.AcquireResult{}, &AbstainError{Left: time.Duration(left) * time.Millisecond}
		}
		rec, err := parseRecord(name, reply)
		return driver.AcquireResult{Held: rec}, err
	}
	return driver.AcquireResult{}, errReply("neither a token nor a description")
}

// An AbstainError says that the server grants no locks for a while, since it
// may have forgotten some; see [Options].RestartGuard.
type AbstainError struct {
	// Left is for how long.
	Left time.Duration
}

func (e *AbstainError) Error() string {
	return fmt.Sprintf("the Redis server has been restarted, emptied or promoted, and grants no locks for another %v "+
		"(RestartGuard)", e.Left)
}

// Unwrap makes the error match [driver.ErrNotApplied].
func (e *AbstainError) Unwrap() error { return driver.ErrNotApplied }

// checkOwner refuses what could not be told from a part of another value.
func checkOwner(owner string) error {
	if owner == "" || strings.Contains(owner, "\n") {
		return fmt.Errorf("%w: an owner that is empty or has a line break", driver.ErrInvalid)
	}
	return nil
}

// millis rounds up, so that nothing ends too early.
func millis(d time.Duration) int64 {
	return max(1, int64((d+time.Millisecond-1)/time.Millisecond))
}

// Renew implements [driver.Store]. The holds are renewed in two pipelines at
// once; in a cluster, in one for each lane.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	calls := make([]*call, len(reqs))
	byLane := map[*lane][]*call{}
	for i, req := range reqs {
		if err := checkOwner(req.Owner); err != nil {
			return nil, err
		}
		calls[i] = s.ownerCall(renewScript, req.Name, req.Owner, millis(req.TTL))
		l := s.lane(calls[i].lock)
		byLane[l] = append(byLane[l], calls[i])
	}
	for l, calls := range byLane {
		l.put(calls...)
	}
	outcomes := make([]driver.RenewOutcome, len(reqs))
	var failed error
	for i, c := range calls {
		reply, err := s.answer(ctx, c)
		if err != nil {
			failed = err
			continue
		}
		outcomes[i] = driver.RenewLost
		if reply == int64(1) {
			outcomes[i] = driver.Renewed
		}
	}
	return outcomes, failed
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	c, err := s.releaseCall(&req)
	if err != nil {
		return false, err
	}
	reply, err := s.do(ctx, true, c)
	return err == nil && reply == int64(1), err
}

func (s *Store) releaseCall(req *driver.ReleaseRequest) (*call, error) {
	keep := int64(0)
	if req.Keep > 0 {
		keep = millis(req.Keep)
	}
	return s.ownerCall(releaseScript, req.Name, req.Owner, keep), checkOwner(req.Owner)
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	return s.inspect(ctx, lookupScript, name)
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string) (driver.Record, bool, error) {
	return s.inspect(ctx, breakScript, name)
}

func (s *Store) inspect(ctx context.Context, script *script, name string) (driver.Record, bool, error) {
	reply, err := s.do(ctx, true, s.newCall(script, name))
	if err != nil || reply == nil {
		return driver.Record{}, false, err
	}
	description, _ := reply.([]any)
	rec, err := parseRecord(name, description)
	return rec, err == nil, err
}
