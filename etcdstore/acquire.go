package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
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
	if err = s.check(ctx); err != nil {
		return res, err
	}
	switch {
	case req.Limit < 0 || req.Limit > driver.Shared:
		return res, fmt.Errorf("%w: a limit of %d", driver.ErrInvalid, req.Limit)
	case req.Tokens > 1:
		return res, fmt.Errorf("%w: a grant has one token", driver.ErrInvalid)
	case req.Floor > 0:
		return res, fmt.Errorf("%w: the floor of a token, which a quorum requests of its nodes", driver.ErrUnsupported)
	}
	id, keys := [2]string{req.Name, req.Owner}, s.lockKeys+req.Name+"\x00"
	look := s.queueOp(req.Name)
	var q queue // as of the last transaction; before the first one, that of a free name
	for try, isReplaced := 0, false; ; try++ {
		if try > 1 {
			if err = retry.Sleep(ctx, retry.Backoff(try-2, 2*time.Millisecond, 100*time.Millisecond)); err != nil {
				return res, driver.NotApplied(err)
			}
		}
		own := &record{
			Owner: hashOf(req.Owner), Holder: req.Holder, Since: s.wall().UnixMilli(), Limit: req.Limit,
			Metadata: req.Metadata,
		}
		next := q.with(own)
		isHold, anyway, ttl := next.waiting() == 0, try > 0 && req.Place > 0, req.TTL
		switch {
		case anyway && isHold: // unless another comes before it
			ttl = max(req.TTL, req.Place)
		case anyway:
			ttl = req.Place
		case !isHold:
			return driver.Result{Held: q.records[0].public(q.waiting())}, nil
		}
		e := &entry{name: req.Name, owner: req.Owner, until: time.Now().Add(ttl)}
		l, err := s.leaseFor(ctx, leaseSeconds(ttl), e.until)
		if err != nil {
			return res, err
		}
		slot := 0
		if len(q.records) > 0 {
			slot = rand.N(16 + 4*len(q.records)) // so that many may come at once
		}
		s.mu.Lock()
		if s.entries[id] != nil {
			s.mu.Unlock()
			return res, errAgain
		}
		s.entries[id], own.Base = e, s.base
		s.mu.Unlock()
		value, _ := json.Marshal(own)
		own.kv = &mvccpb.KeyValue{Key: []byte(keys + strconv.Itoa(slot)), Value: value, Lease: int64(l.id)}
		conditions := []clientv3.Cmp{
			// No cluster has lost its data, and nobody has deleted all keys of the prefix.
			clientv3.Compare(clientv3.Value(s.baseKey), "=", strconv.FormatInt(own.Base, 10)),
			clientv3.Compare(clientv3.CreateRevision(own.key()), "=", 0),
		}
		if !anyway {
			hasNone := clientv3.Compare(clientv3.CreateRevision(keys), "<", q.revision+1)
			conditions = append(conditions, hasNone.WithPrefix())
		}
		put := clientv3.OpPut(own.key(), string(value), clientv3.WithLease(l.id))
		otherwise := []clientv3.Op{look}
		if own.Base == 0 || q.revision > 0 { // It may not be the base any more.
			otherwise = append(otherwise, clientv3.OpGet(s.baseKey))
		}
		resp, err := s.write(ctx, req.Name, conditions, []clientv3.Op{look, put}, otherwise...)
		var found queue
		if err == nil {
			found, err = s.decodeQueue(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
		}
		s.mu.Lock()
		if resp != nil && resp.Succeeded {
			own.kv.CreateRevision, own.kv.ModRevision = found.revision, found.revision
			next = found.with(own)
			// What has the lease of a place is told, and renewed.
			e.record, e.held = own, err == nil && next.waiting() == 0 && ttl >= req.TTL
			res = driver.Result{Granted: e.held, Waiting: !e.held, Token: own.token()}
			if res.Waiting {
				e.until = e.until.Add(req.Place - ttl)
				if len(found.records) > 0 {
					res.Held = found.records[0].public(found.waiting())
				}
			}
			s.mu.Unlock()
			s.watch(e, next)
			return res, err
		}
		isOpen := err != nil && !driver.IsNotApplied(err)
		// The lease may be lost, or have a key of somebody else.
		again := !isReplaced && (errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrPermissionDenied))
		if again || isOpen && !errors.Is(err, rpctypes.ErrNoSpace) {
			// What arrives late must not live as long as the Store: its lease is given up. Without
			// space the server may have applied it, and does not later.
			s.giveUp(l)
		}
		if !isOpen { // else Renew tells what has become of it
			s.forget(e)
		}
		s.mu.Unlock()
		switch {
		case again:
			isReplaced = true
		case err != nil:
			return res, err
		case found.of(req.Owner) != nil:
			return res, errAgain
		default:
			if q = found; len(resp.Responses) > 1 {
				if err = s.noteBase(ctx, resp.Responses[1].GetResponseRange().Kvs); err != nil {
					return res, err
				}
			}
		}
	}
}

// noteBase notes what is added to create revisions, so that tokens are above those of other stores
// and of a cluster before this one. The first client of a prefix writes it, by its clock.
func (s *Store) noteBase(ctx context.Context, kvs []*mvccpb.KeyValue) error {
	if len(kvs) == 0 {
		isAbsent := clientv3.Compare(clientv3.CreateRevision(s.baseKey), "=", 0)
		base := strconv.FormatInt(s.wall().UnixMicro(), 10)
		_, err := s.write(ctx, "", []clientv3.Cmp{isAbsent}, []clientv3.Op{clientv3.OpPut(s.baseKey, base)})
		return driver.NotApplied(err)
	}
	base, err := strconv.ParseInt(string(kvs[0].Value), 10, 64)
	if err != nil || base <= 0 || base > driver.MaxToken {
		return fmt.Errorf("%w: key %q", driver.ErrCorrupt, kvs[0].Key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = base
	return nil
}
