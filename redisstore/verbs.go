package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	if err := errors.Join(s.checkUsable(ctx), checkOwner(req.Owner), checkRequest(&req)); err != nil {
		return driver.Result{}, err
	}
	k := kind{
		script: acquireScript, ms: ceilMillis(req.TTL), place: ceilMillis(req.Place),
		limit: max(req.Limit, 1), tokens: max(req.Tokens, 1), describe: req.Holder,
	}
	if len(req.Metadata) > 0 {
		metadata, err := json.Marshal(req.Metadata)
		if err != nil {
			return driver.Result{}, fmt.Errorf("%w: metadata: %w", driver.ErrInvalid, err)
		}
		k.describe += "\n" + string(metadata)
	}
	s.listener.expect(req.Name, req.Owner, max(req.TTL, req.Place))
	reply, err := s.runCall(ctx, s.newCall(k, req.Name, req.Owner, req.Floor))
	if err != nil {
		return driver.Result{}, err
	}
	if token, ok := reply.(int64); ok {
		s.startListening(false)
		return driver.Result{Granted: true, Token: token}, nil
	}
	words, _ := reply.([]any)
	if len(words) < 2 {
		return driver.Result{}, errReply("neither a token nor a description")
	}
	var res driver.Result
	if res.Waiting = words[0] == "waiting"; res.Waiting {
		res.Token, _ = words[1].(int64)
		s.startListening(true)
	} else {
		s.listener.forget(req.Owner)
	}
	if len(words) > 2 && words[2] != nil {
		res.Held, err = parseRecord(req.Name, 0, words[2])
	}
	return res, err
}

// checkRequest returns the error of a request that no server is asked for.
func checkRequest(req *driver.Request) error {
	switch {
	case req.Limit < 0 || req.Limit > driver.Shared:
		return fmt.Errorf("%w: the limit is below 0 or above %d", driver.ErrInvalid, driver.Shared)
	case req.Tokens < 0 || req.Tokens > maxTokens:
		return fmt.Errorf("%w: more than %d tokens are requested", driver.ErrInvalid, maxTokens)
	case req.Tokens > 1 && (req.Limit > 1 || req.Floor > 0):
		return fmt.Errorf("%w: several tokens with a limit or a floor", driver.ErrInvalid)
	case req.Floor > 0 && req.Place > 0:
		return fmt.Errorf("%w: a floor with a place", driver.ErrInvalid)
	}
	return nil
}

// checkOwner refuses an owner that is ambiguous in the value of a lock.
func checkOwner(owner string) error {
	if owner == "" || strings.ContainsAny(owner, "\n\x1f") || strings.HasPrefix(owner, "shared:") || strings.HasPrefix(owner, "released:") {
		return fmt.Errorf("%w: an owner that is empty, or could be taken for something else in the value of a lock", driver.ErrInvalid)
	}
	return nil
}

// ceilMillis rounds up, so that nothing ends too early.
func ceilMillis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Renew implements [driver.Store]. It renews up to 1024 entries in each round trip; in a cluster,
// concurrently those of 16 groups of hash slots.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	calls := make([]*call, len(reqs))
	for i, req := range reqs {
		if err := checkOwner(req.Owner); err != nil {
			return nil, err
		}
		s.listener.expect(req.Name, req.Owner, req.TTL)
		calls[i] = s.newCall(kind{script: renewScript, ms: ceilMillis(req.TTL)}, req.Name, req.Owner, req.Token)
	}
	states := map[any]driver.State{"held": driver.Held, "waiting": driver.Waiting, "lost": driver.Lost}
	entries := make([]driver.Entry, len(reqs))
	var failed error
	for i, err := range s.runCalls(ctx, calls) {
		if err != nil { // The batch may be under way, and write into the call.
			failed = err
			continue
		}
		switch words, _ := calls[i].reply.([]any); {
		case len(words) != 2:
			failed = errReply("no state of an entry")
		default:
			entries[i].State = states[words[0]]
			entries[i].Token, _ = words[1].(int64)
			if entries[i].State == driver.Lost {
				s.listener.forget(reqs[i].Owner)
			} else {
				s.startListening(entries[i].State == driver.Waiting)
			}
		}
	}
	return entries, failed
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := errors.Join(s.checkUsable(ctx), checkOwner(req.Owner)); err != nil {
		return false, err
	}
	reply, err := s.runCall(ctx, s.newCall(kind{script: releaseScript, ms: ceilMillis(req.Keep)}, req.Name, req.Owner, 0))
	if err == nil {
		s.listener.forget(req.Owner)
	}
	return err == nil && reply == int64(1), err
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return s.callForRecords(ctx, s.newCall(kind{script: lookupScript}, name, "", 0), name)
}

// Break implements [driver.Store]. A key that is not a string may be data of an application: Break
// does not delete it and returns an error that matches [driver.ErrInvalid] and has its type. A key
// that another kind of client has written has no token: only a request without a token ends it.
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return s.callForRecords(ctx, s.newCall(kind{script: breakScript}, name, "", token), name)
}

// callForRecords makes a call with descriptions of holds as its reply.
func (s *Store) callForRecords(ctx context.Context, c *call, name string) ([]driver.Record, error) {
	reply, err := s.runCall(ctx, c)
	if err != nil {
		return nil, err
	}
	return parseRecords(name, reply)
}
