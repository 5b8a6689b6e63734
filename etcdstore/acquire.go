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
	ctx, cancel, err := s.begin(ctx, req.Name)
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
		base, err := s.tokenBase(ctx)
		if err != nil {
			return res, err
		}
		began := time.Now()
		l, err := s.leaseFor(ctx, ttl)
		if err != nil {
			return res, err
		}
		e, err := s.enter(&req, base, l, began.Add(ttl), len(q.records))
		if err != nil {
			return res, err
		}
		conditions := []clientv3.Cmp{s.isBase(base), clientv3.Compare(clientv3.CreateRevision(e.key), "=", 0)}
		if !anyway {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.entriesKey(req.Name)), "<", q.revision+1).WithPrefix())
		}
		found, isMade, err := s.makeEntry(ctx, e, conditions)
		switch {
		case isMade:
			s.mu.Lock()
			if !e.held {
				e.until = began.Add(req.Place)
			}
			res = driver.Result{Granted: e.held, Waiting: !e.held, Token: e.token}
			s.mu.Unlock()
			if s.watch(e, found.records, found.revision); res.Waiting && len(found.records) > 0 {
				res.Held = found.records[0].public(found.waiting())
			}
			return res, nil
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // The next lease is new.
		case errors.Is(err, rpctypes.ErrPermissionDenied) && !isReplaced && s.mayAcquire(ctx, e):
			s.giveUp(l) // It has a key of somebody else.
			isReplaced = true
		case err != nil:
			return res, err
		default:
			q = found
		}
	}
}

// enter makes the entry of a request known to the Store.
func (s *Store) enter(req *driver.Request, base int64, l *lease, until time.Time, ahead int) (*entry, error) {
	slot := 0
	if ahead > 0 {
		slot = rand.N(16 + 4*ahead) // so that many may come at once
	}
	rec := record{Base: base, Owner: hashOf(req.Owner), Holder: req.Holder, Since: s.wall().UnixMilli(), Limit: req.Limit, Metadata: req.Metadata}
	e := &entry{
		name: req.Name, owner: req.Owner, limit: req.Limit, key: s.entriesKey(req.Name) + strconv.Itoa(slot), value: rec.encode(),
		base: base, on: l.id, until: until,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[id(e.name, e.owner)] != nil {
		return nil, errAgain
	}
	s.entries[id(e.name, e.owner)] = e
	return e, nil
}

// makeEntry sends the transaction that makes an entry, and returns the queue that it has found.
// What is certainly not made is forgotten.
func (s *Store) makeEntry(ctx context.Context, e *entry, conditions []clientv3.Cmp) (q queue, isMade bool, err error) {
	resp, revision, err := s.write(ctx, e.name, conditions,
		[]clientv3.Op{s.getEntries(e.name), clientv3.OpPut(e.key, e.value, clientv3.WithLease(e.on))},
		s.getEntries(e.name), clientv3.OpGet(s.baseKey()))
	if errors.Is(err, rpctypes.ErrNoSpace) { // The server may have applied it.
		if _, _, endErr := s.write(ctx, e.name, []clientv3.Cmp{e.is()}, []clientv3.Op{clientv3.OpDelete(e.key)}); endErr == nil {
			err = driver.NotApplied(err)
		}
	}
	if err != nil && !driver.IsNotApplied(err) {
		return q, false, err // Renew tells what has become of it.
	}
	if err == nil {
		q, err = s.decodeQueue(resp.Responses[0].GetResponseRange().Kvs, revision)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && resp.Succeeded {
		e.token, e.modified, e.held = e.base+revision, revision, admits(q.records, e.limit)
		return q, true, nil
	}
	delete(s.entries, id(e.name, e.owner))
	switch {
	case err != nil:
	case q.index(e.owner) >= 0:
		err = errAgain
	default: // Somebody may have deleted all keys of the prefix: there is another base then.
		if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) == 0 || string(kvs[0].Value) != strconv.FormatInt(e.base, 10) {
			s.base = 0
		}
	}
	return q, false, err
}

// mayAcquire reports whether the user has the rights that the Acquire of an entry needs. The server
// checks those of a transaction that does nothing, too.
func (s *Store) mayAcquire(ctx context.Context, e *entry) bool {
	_, _, err := s.write(ctx, e.name, []clientv3.Cmp{s.never()}, []clientv3.Op{s.getEntries(e.name), clientv3.OpPut(e.key, "")})
	return err == nil
}

// pause waits before what is done again, but for the first time.
func pause(ctx context.Context, try int) error {
	if try < 2 {
		return nil
	}
	return retry.Sleep(ctx, retry.Backoff(try-2, 2*time.Millisecond, 100*time.Millisecond))
}
