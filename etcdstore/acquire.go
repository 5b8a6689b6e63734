package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

var errAgain = errors.New("the owner has an entry already")

// Acquire implements [driver.Store].
//
// One transaction takes a name that is free. Otherwise the reply has the queue. With a Place, the
// next one makes an entry, whatever has come since. Without, it makes a hold, if that would hold
// and nothing has come. Another follows only if that one has changed nothing.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return res, err
	}
	defer cancel()
	switch {
	case req.Limit < 0 || req.Limit > driver.Shared:
		return res, fmt.Errorf("%w: a limit of %d", driver.ErrInvalid, req.Limit)
	case req.Tokens > 1:
		return res, fmt.Errorf("%w: a grant has one token", driver.ErrInvalid)
	case req.Floor > 0:
		return res, fmt.Errorf("%w: the floor of a token, which a quorum requests of its nodes", driver.ErrUnsupported)
	}
	var q queue // as of the last transaction; before the first one, that of a free name
	for try, isReplaced := 0, false; ; try++ {
		if err = pause(ctx, try); err != nil {
			return res, driver.NotApplied(err)
		}
		isHold, anyway, ttl := admits(q.records, req.Limit), try > 0 && req.Place > 0, req.TTL
		switch {
		case anyway && isHold: // unless another comes before it
			ttl = max(req.TTL, req.Place)
		case anyway:
			ttl = req.Place
		case !isHold:
			return driver.Result{Held: q.records[0].public(q.waiting())}, nil
		}
		e, err := s.enter(ctx, &req, ttl, len(q.records))
		if err != nil {
			return res, err
		}
		found, isMade, err := s.makeEntry(ctx, e, q.revision, anyway)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // The next lease is new.
		case errors.Is(err, rpctypes.ErrPermissionDenied) && !isReplaced:
			s.giveUp(e.on) // It may have a key of somebody else.
			isReplaced = true
		case err != nil:
			return res, err
		case !isMade:
			q = found
		default:
			s.mu.Lock()
			e.held = e.held && ttl >= req.TTL // What has the lease of a place is told, and renewed.
			if res = (driver.Result{Granted: e.held, Waiting: !e.held, Token: e.token}); res.Waiting {
				e.until = e.until.Add(req.Place - ttl)
				if len(found.records) > 0 {
					res.Held = found.records[0].public(found.waiting())
				}
			}
			s.mu.Unlock()
			s.watch(e, found)
			return res, nil
		}
	}
}

// enter makes the entry of a request known to the Store, with a lease, behind others.
func (s *Store) enter(ctx context.Context, req *driver.Request, ttl time.Duration, ahead int) (*entry, error) {
	base, err := s.tokenBase(ctx)
	if err != nil {
		return nil, err
	}
	e := &entry{name: req.Name, owner: req.Owner, limit: req.Limit, base: base, until: time.Now().Add(ttl)}
	l, err := s.leaseFor(ctx, ttl)
	if err != nil {
		return nil, err
	}
	slot := 0
	if ahead > 0 {
		slot = rand.N(16 + 4*ahead) // so that many may come at once
	}
	rec := record{Base: base, Owner: hashOf(req.Owner), Holder: req.Holder, Since: s.wall().UnixMilli(), Limit: req.Limit, Metadata: req.Metadata}
	e.key, e.value, e.on = s.entriesKey(req.Name)+strconv.Itoa(slot), rec.encode(), l.id
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]string{e.name, e.owner}
	if s.entries[key] != nil {
		return nil, errAgain
	}
	s.entries[key] = e
	return e, nil
}

// makeEntry sends the transaction that makes an entry, unless one has come since a revision, or
// anyway. It returns the queue that it has found. What is certainly not made is forgotten.
func (s *Store) makeEntry(ctx context.Context, e *entry, since int64, anyway bool) (q queue, isMade bool, err error) {
	conditions := []clientv3.Cmp{s.isBase(e.base), clientv3.Compare(clientv3.CreateRevision(e.key), "=", 0)}
	if !anyway {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.entriesKey(e.name)), "<", since+1).WithPrefix())
	}
	resp, err := s.write(ctx, e.name, conditions,
		[]clientv3.Op{s.getEntries(e.name), clientv3.OpPut(e.key, e.value, clientv3.WithLease(e.on))},
		s.getEntries(e.name))
	if errors.Is(err, rpctypes.ErrNoSpace) { // The server may have applied it.
		s.mu.Lock()
		e.until = time.Time{} // It is lost, also if its end gets lost.
		s.mu.Unlock()
		if _, endErr := s.write(ctx, e.name, []clientv3.Cmp{e.is()}, []clientv3.Op{clientv3.OpDelete(e.key)}); endErr == nil {
			err = driver.NotApplied(err)
		}
	}
	if err != nil && !driver.IsNotApplied(err) {
		return q, false, err // Renew tells what has become of it.
	}
	if isMade = err == nil && resp.Succeeded; err == nil {
		q, err = s.decodeQueue(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case isMade:
		e.token, e.modified, e.held = e.base+q.revision, q.revision, err == nil && admits(q.records, e.limit)
		return q, true, err
	case err == nil && q.index(e.owner) >= 0:
		err = errAgain
	case err == nil && (since > 0 || len(q.records) == 0):
		s.base = 0 // Somebody may have deleted all keys of the prefix.
	}
	delete(s.entries, [2]string{e.name, e.owner})
	return q, false, err
}

// pause waits before what is done again, but for the first time.
func pause(ctx context.Context, try int) error {
	if try < 2 {
		return nil
	}
	return retry.Sleep(ctx, retry.Backoff(try-2, 2*time.Millisecond, 100*time.Millisecond))
}
