package etcdstore

import (
	"context"
	"encoding/json"
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
		isHold, anyway, ttl := admits(q.records, req.Limit), try > 0 && req.Place > 0, req.TTL
		switch {
		case anyway && isHold: // unless another comes before it
			ttl = max(req.TTL, req.Place)
		case anyway:
			ttl = req.Place
		case !isHold:
			return driver.Result{Held: q.records[0].public(q.waiting())}, nil
		}
		s.mu.Lock()
		base := s.base
		s.mu.Unlock()
		if base == 0 {
			if base, err = s.readBase(ctx); err != nil {
				return res, err
			}
		}
		until := time.Now().Add(ttl)
		l, err := s.leaseFor(ctx, leaseSeconds(ttl), until)
		if err != nil {
			return res, err
		}
		slot := 0
		if len(q.records) > 0 {
			slot = rand.N(16 + 4*len(q.records)) // so that many may come at once
		}
		value, _ := json.Marshal(record{
			Base: base, Owner: hashOf(req.Owner), Holder: req.Holder, Since: s.wall().UnixMilli(), Limit: req.Limit,
			Metadata: req.Metadata,
		})
		e := &entry{
			name: req.Name, owner: req.Owner, key: keys + strconv.Itoa(slot), value: string(value),
			limit: req.Limit, on: l.id, until: until,
		}
		s.mu.Lock()
		if s.entries[id] != nil {
			s.mu.Unlock()
			return res, errAgain
		}
		s.entries[id] = e
		s.mu.Unlock()
		conditions := []clientv3.Cmp{
			// No cluster has lost its data, and nobody has deleted all keys of the prefix.
			clientv3.Compare(clientv3.Value(s.baseKey), "=", strconv.FormatInt(base, 10)),
			clientv3.Compare(clientv3.CreateRevision(e.key), "=", 0),
		}
		if !anyway {
			hasNone := clientv3.Compare(clientv3.CreateRevision(keys), "<", q.revision+1)
			conditions = append(conditions, hasNone.WithPrefix())
		}
		put := clientv3.OpPut(e.key, e.value, clientv3.WithLease(l.id))
		resp, err := s.write(ctx, req.Name, conditions, []clientv3.Op{look, put}, look)
		var found queue
		if err == nil {
			found, err = s.decodeQueue(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
		}
		s.mu.Lock()
		switch {
		case resp != nil && resp.Succeeded:
			e.token, e.modified = base+found.revision, found.revision
			// What has the lease of a place is told, and renewed.
			e.held = err == nil && admits(found.records, e.limit) && ttl >= req.TTL
			res = driver.Result{Granted: e.held, Waiting: !e.held, Token: e.token}
			if res.Waiting {
				e.until = e.until.Add(req.Place - ttl)
				if len(found.records) > 0 {
					res.Held = found.records[0].public(found.waiting())
				}
			}
			s.mu.Unlock()
			s.watch(e, found)
			return res, err
		case errors.Is(err, rpctypes.ErrNoSpace): // The server may have applied it, and does not later.
			e.on = 0
		case errors.Is(err, rpctypes.ErrPermissionDenied) && !isReplaced: // The lease may have a key of somebody else.
			delete(s.leases, l.seconds)
		case err == nil && (q.revision > 0 || len(found.records) == 0):
			s.base = 0 // Somebody may have deleted all keys of the prefix.
		}
		if err == nil || driver.IsNotApplied(err) { // else Renew tells what has become of it
			delete(s.entries, id)
		}
		s.mu.Unlock()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // The next lease is new.
		case errors.Is(err, rpctypes.ErrPermissionDenied) && !isReplaced:
			isReplaced = true
		case err != nil:
			return res, err
		case found.index(req.Owner) >= 0:
			return res, errAgain
		default:
			q = found
		}
	}
}
