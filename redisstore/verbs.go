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
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	if err := errors.Join(s.checkUsable(ctx), checkOwner(req.Owner), lockqueue.Check(&req)); err != nil {
		return driver.Result{}, err
	} else if req.Tokens > maxTokens {
		return driver.Result{}, fmt.Errorf("%w: more than %d tokens are requested", driver.ErrInvalid, maxTokens)
	}
	s.listener.notices.Expect(req.Name, req.Owner, max(req.TTL, req.Place))
	c := s.acquireCall(&req)
	reply, err := s.runCall(ctx, c)
	if err != nil {
		return driver.Result{}, err
	}
	if token, ok := reply.(int64); ok {
		if c.unconfirmed != nil {
			return driver.Result{}, c.unconfirmed
		}
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
		s.listener.notices.Forget(req.Name, req.Owner)
	}
	if len(words) > 2 && words[2] != nil {
		res.Held, err = parseRecord(req.Name, 0, words[2])
	}
	return res, err
}

func (s *Store) acquireCall(req *driver.Request) *call {
	common := millis(req.TTL) + " " + millis(req.Place) + " " + strconv.Itoa(max(req.Limit, 1)) + " " + strconv.Itoa(max(req.Tokens, 1)) + " " + s.listener.channel + "\n" + req.Holder
	if len(req.Metadata) > 0 {
		metadata, _ := json.Marshal(req.Metadata) // Texts can be marshaled.
		common += "\n" + string(metadata)
	}
	args := []any{req.Owner}
	if req.Floor > 0 {
		args = append(args, req.Floor)
	}
	return s.newCall(acquireScript, common, req.Name, req.Owner, args...)
}

// checkOwner refuses an owner that is ambiguous in the value of a lock.
func checkOwner(owner string) error {
	if owner == "" || strings.ContainsAny(owner, "\n\x1f") || strings.HasPrefix(owner, "shared:") || strings.HasPrefix(owner, "released:") {
		return fmt.Errorf("%w: an owner that is empty, or could be taken for something else in the value of a lock", driver.ErrInvalid)
	}
	return nil
}

// millis returns a duration in ms, rounded up, so that nothing ends too early.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
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
		s.listener.notices.Expect(req.Name, req.Owner, req.TTL)
		calls[i] = s.newCall(renewScript, millis(req.TTL)+" "+s.listener.channel, req.Name, "", req.Owner, req.Token)
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
		case words[0] == "held" && calls[i].unconfirmed != nil:
			failed = calls[i].unconfirmed
		default:
			entries[i].State = states[words[0]]
			entries[i].Token, _ = words[1].(int64)
			if entries[i].State == driver.Lost {
				s.listener.notices.Forget(reqs[i].Name, reqs[i].Owner)
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
	c := s.newCall(releaseScript, millis(req.Keep), req.Name, req.Owner, req.Owner)
	reply, err := s.runCall(ctx, c)
	if err != nil {
		return false, err
	}
	s.listener.notices.Forget(req.Name, req.Owner)
	if req.Keep > 0 && reply == int64(1) && c.unconfirmed != nil {
		return false, c.unconfirmed
	}
	return reply == int64(1), nil
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return s.callForRecords(ctx, s.newCall(lookupScript, "", name, ""), name)
}

// Break implements [driver.Store]. A key that is not a string may be data of an application: Break
// does not delete it and returns an error that matches [driver.ErrInvalid] and has its type. A key
// that another kind of client has written has no token: only a request without a token ends it.
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return s.callForRecords(ctx, s.newCall(breakScript, "", name, "", token), name)
}

// callForRecords makes a call with descriptions of holds as its reply.
func (s *Store) callForRecords(ctx context.Context, c *call, name string) ([]driver.Record, error) {
	reply, err := s.runCall(ctx, c)
	if err != nil {
		return nil, err
	}
	return parseRecords(name, reply)
}
