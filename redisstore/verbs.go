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
	if err := errors.Join(checkOwner(req.Owner), lockqueue.Check(&req)); err != nil {
		return driver.Result{}, err
	} else if req.Tokens > maxTokens {
		return driver.Result{}, fmt.Errorf("%w: more than %d tokens are requested", driver.ErrInvalid, maxTokens)
	}
	s.listener.notices.Expect(req.Name, req.Owner, max(req.TTL, req.Place))
	c := s.acquireCall(&req)
	reply, err := s.runCall(ctx, c)
	if driver.IsNotApplied(err) {
		s.listener.notices.Forget(req.Name, req.Owner)
	}
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
	common := append(make([]byte, 0, 128), s.common...)
	for _, number := range [...]int64{millis(req.TTL), millis(req.Place), int64(max(req.Limit, 1)), int64(max(req.Tokens, 1))} {
		common = append(strconv.AppendInt(common, number, 10), ' ')
	}
	common = append(append(append(common, s.listener.channel...), '\n'), req.Holder...)
	if len(req.Metadata) > 0 {
		metadata, _ := json.Marshal(req.Metadata) // Texts can be marshaled.
		common = append(append(common, '\n'), metadata...)
	}
	c := s.newCall(acquireScript, string(common), req.Name, req.Owner)
	if req.Floor > 0 {
		c.args, c.words[1] = 2, strconv.FormatInt(req.Floor, 10)
	}
	c.order = req.Owner
	return c
}

// checkOwner refuses an owner that is ambiguous in the value of a lock.
func checkOwner(owner string) error {
	if owner == "" || strings.ContainsAny(owner, "\n\x1f") || strings.HasPrefix(owner, "shared:") || strings.HasPrefix(owner, "released:") {
		return fmt.Errorf("%w: an owner that is empty, or could be taken for something else in the value of a lock", driver.ErrInvalid)
	}
	return nil
}

// millis returns a duration in ms, rounded up, so that nothing ends too early.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Renew implements [driver.Store]. It takes one round trip; in a cluster, one to each master at the
// same time.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	calls := make([]*call, len(reqs))
	common, ttl := "", time.Duration(-1)
	for i, req := range reqs {
		if err := checkOwner(req.Owner); err != nil {
			return nil, err
		}
		s.listener.notices.Expect(req.Name, req.Owner, req.TTL)
		if req.TTL != ttl { // They share one text.
			ttl, common = req.TTL, fmt.Sprint(s.common, millis(req.TTL), " ", s.listener.channel)
		}
		calls[i] = s.newCall(renewScript, common, req.Name, req.Owner, strconv.FormatInt(req.Token, 10))
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
	if err := checkOwner(req.Owner); err != nil {
		return false, err
	}
	c := s.newCall(releaseScript, s.common+strconv.FormatInt(millis(req.Keep), 10), req.Name, req.Owner)
	c.order = req.Owner
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
	return s.runForRecords(ctx, s.newCall(lookupScript, s.common, name))
}

// Break implements [driver.Store]. A key that is not a string may be data of an application: Break
// does not delete it and returns an error that matches [driver.ErrInvalid] and has its type. A key
// that another kind of client has written has no token: only a request without a token ends it.
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return s.runForRecords(ctx, s.newCall(breakScript, s.common, name, strconv.FormatInt(token, 10)))
}

// runForRecords makes a call with descriptions of holds as its reply.
func (s *Store) runForRecords(ctx context.Context, c *call) ([]driver.Record, error) {
	reply, err := s.runCall(ctx, c)
	if err != nil {
		return nil, err
	}
	return parseRecords(c.lock[len(s.prefix):], reply)
}
