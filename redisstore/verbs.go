package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Acquire implements [olddriver.Store]. A request with Queue that finds the name held is sent a second
// time if the Store has no connection for notices yet, which is made before.
func (s *engine) Acquire(ctx context.Context, req olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	for first := true; ; first = false {
		c, err := s.acquireCall(&req)
		if err != nil {
			return olddriver.AcquireResult{}, err
		}
		reply, err := s.runCall(ctx, c)
		if err != nil {
			return olddriver.AcquireResult{}, err
		}
		res, err := granted(req.Name, reply)
		if err != nil || !first || !s.mustSubscribe(&req, c, res) || !s.notifier.subscribe(ctx, c.lock, c.tag) {
			return res, err
		}
	}
}

// mustSubscribe reports whether a request was not queued because the Store receives no notices.
func (s *engine) mustSubscribe(req *olddriver.AcquireRequest, c *call, res olddriver.AcquireResult) bool {
	return req.Queue > 0 && !req.Claim && !strings.Contains(c.wait, " ") && !res.Granted && s.guarantees.Fair
}

func (s *engine) acquireCall(req *olddriver.AcquireRequest) (*call, error) {
	switch err := checkOwner(req.Owner); {
	case err != nil:
		return nil, err
	case req.Limit > olddriver.MaxLimit:
		return nil, fmt.Errorf("%w: the limit is too large", driver.ErrInvalid)
	case req.Claim && !s.guarantees.Fair:
		return nil, driver.ErrUnsupported
	case req.Claim:
		c := s.newOwnerCall(claimScript, req.Name, req.Owner, ceilMillis(req.TTL))
		c.wait = "0"
		if req.Queue > 0 {
			c.wait = strconv.FormatInt(ceilMillis(req.Queue), 10)
		}
		return c, nil
	}
	c := s.newOwnerCall(acquireScript, req.Name, req.Owner, ceilMillis(req.TTL))
	c.wait = s.waitOf(req, c.tag)
	c.floor, c.tokens, c.public = req.Floor, min(req.Tokens, olddriver.MaxTokens), req.Holder
	c.limit = max(req.Limit, olddriver.Shared)
	if len(req.Metadata) > 0 {
		metadata, err := json.Marshal(req.Metadata)
		if err != nil {
			return nil, fmt.Errorf("%w: metadata: %w", driver.ErrInvalid, err)
		}
		c.public += "\n" + string(metadata)
	}
	return c, nil
}

// waitOf returns how a request waits, for the scripts: "" if it does not, or the Store receives no
// notices yet.
func (s *engine) waitOf(req *olddriver.AcquireRequest, tag string) string {
	if req.Queue <= 0 {
		return ""
	}
	reach := s.notifier.reachOf(tag)
	if reach == "" {
		return ""
	}
	return strconv.FormatInt(ceilMillis(req.Queue), 10) + " " + reach
}

// granted reads the reply of the acquire script.
func granted(name string, reply any) (olddriver.AcquireResult, error) {
	if res := grantOf(reply); res.Granted {
		return res, nil
	}
	list, ok := reply.([]any)
	if !ok {
		return olddriver.AcquireResult{}, errReply("neither a token nor a description")
	}
	if len(list) == 3 && list[0] == "abstains" {
		left, _ := list[1].(int64)
		return olddriver.AcquireResult{}, &driver.RetryError{Err: errGuarded, After: time.Duration(left) * time.Millisecond}
	}
	rec, err := parseRecord(name, list)
	res := olddriver.AcquireResult{Held: rec}
	if len(list) > 5 {
		place, _ := list[5].(int64)
		res.Queued, res.First = place > 0, place == 2
	}
	return res, err
}

// grantOf returns the grant in a reply of the acquire script: a token, or several. It returns the
// zero result for any other reply.
func grantOf(reply any) (res olddriver.AcquireResult) {
	switch reply := reply.(type) {
	case int64:
		res.Granted, res.Token = true, reply
	case []any:
		if len(reply) == 3 && reply[0] == "granted" {
			tokens, _ := reply[2].(int64)
			res.Granted, res.Tokens = true, int(tokens)
			res.Token, _ = reply[1].(int64)
		}
	}
	return res
}

// errGuarded is the error of a server that may have forgotten locks; see [Options].RestartGuard.
var errGuarded = errors.New("the Redis server may have forgotten locks, since it was restarted, emptied or promoted, and grants none for a while (RestartGuard)")

// checkOwner refuses an owner that is ambiguous in the value of a lock.
func checkOwner(owner string) error {
	if owner == "" || strings.ContainsAny(owner, "\n"+markSuffix) {
		return fmt.Errorf("%w: an owner that is empty or has a line break or the character 0x1f", driver.ErrInvalid)
	}
	return nil
}

// ceilMillis rounds up, so that nothing ends too early.
func ceilMillis(d time.Duration) int64 {
	return max(1, int64((d+time.Millisecond-1)/time.Millisecond))
}

// Renew implements [olddriver.Store]. It renews up to 1024 holds and places in each round trip; in a
// cluster, concurrently those of 16 groups of hash slots.
func (s *engine) Renew(ctx context.Context, reqs []olddriver.RenewRequest) ([]olddriver.RenewOutcome, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	calls := make([]*call, len(reqs))
	for i, req := range reqs {
		if err := checkOwner(req.Owner); err != nil {
			return nil, err
		}
		owner := req.Owner
		if req.Token != 0 {
			owner += "\n" + strconv.FormatInt(req.Token, 10)
		}
		calls[i] = s.newOwnerCall(renewScript, req.Name, owner, ceilMillis(req.TTL))
	}
	outcomes := make([]olddriver.RenewOutcome, len(reqs))
	var failed error
	for i, err := range s.runCalls(ctx, calls) {
		switch {
		case err != nil:
			failed = err
		case calls[i].reply == int64(1):
			outcomes[i] = olddriver.Renewed
		case calls[i].reply == int64(2):
			outcomes[i] = olddriver.RenewQueued
		default:
			outcomes[i] = olddriver.RenewLost
		}
	}
	return outcomes, failed
}

// Release implements [olddriver.Store].
func (s *engine) Release(ctx context.Context, req olddriver.ReleaseRequest) (bool, error) {
	c, err := s.releaseCall(&req)
	if err != nil {
		return false, err
	}
	reply, err := s.runCall(ctx, c)
	return err == nil && reply == int64(1), err
}

func (s *engine) releaseCall(req *olddriver.ReleaseRequest) (*call, error) {
	keep := int64(0)
	if req.Keep > 0 {
		keep = ceilMillis(req.Keep)
	}
	return s.newOwnerCall(releaseScript, req.Name, req.Owner, keep), checkOwner(req.Owner)
}

// Lookup implements [olddriver.Store].
func (s *engine) Lookup(ctx context.Context, name string) (olddriver.Record, bool, error) {
	return s.callForRecord(ctx, s.newCall(lookupScript, name), name)
}

// Break implements [olddriver.Store]. A key that is not a string may be data of an
// application: Break does not delete it and returns an error that matches
// [driver.ErrInvalid] and has its type. A key that another kind of client has written has no
// token, and neither has a name that is kept: only a request without a token ends these.
func (s *engine) Break(ctx context.Context, req olddriver.BreakRequest) (olddriver.Record, bool, error) {
	c := s.newCall(breakScript, req.Name)
	if req.Token != 0 {
		c.owner = strconv.FormatInt(req.Token, 10) + "\n"
	}
	return s.callForRecord(ctx, c, req.Name)
}

// callForRecord makes a call with the description of a hold as its reply.
func (s *engine) callForRecord(ctx context.Context, c *call, name string) (olddriver.Record, bool, error) {
	reply, err := s.runCall(ctx, c)
	if err != nil || reply == nil {
		return olddriver.Record{}, false, err
	}
	description, _ := reply.([]any)
	rec, err := parseRecord(name, description)
	return rec, err == nil, err
}
