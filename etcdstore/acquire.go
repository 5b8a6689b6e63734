package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
// The first transaction makes an entry if the name is free. Otherwise its reply has the queue. If
// the owner would hold by that, or has a Place, the next one makes an entry, also behind entries
// that have come meanwhile. If that does not hold and has no Place, it is ended again. If its slot
// is taken or the base is another, a transaction changes nothing, and the next one follows.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	switch {
	case req.Limit < 0 || req.Tokens > 1:
		return res, fmt.Errorf("%w: a limit of %d, or more than one token", driver.ErrInvalid, req.Limit)
	case req.Floor > 0:
		return res, fmt.Errorf("%w: the floor of a token, which a quorum requests of its nodes", driver.ErrUnsupported)
	}
	id, keys := [2]string{req.Name, req.Owner}, s.lockKeys+req.Name+"\x00"
	get := clientv3.OpGet(keys, clientv3.WithPrefix())
	var q queue // as of the last transaction; before the first one, that of a free name
	for try := 0; ; try++ {
		if try > 1 {
			if err = retry.Sleep(ctx, retry.Backoff(try-2, 2*time.Millisecond, 100*time.Millisecond)); err != nil {
				return res, driver.NotApplied(err)
			}
		}
		own := &record{
			Owner: hashOf(req.Owner), Holder: req.Holder, Since: s.wall().UnixMilli(), Limit: req.Limit,
			Metadata: req.Metadata, name: req.Name,
		}
		next := queue{records: append(slices.Clip(q.records), own)}
		isHold, ttl := next.waiting() == 0, req.TTL
		switch {
		case isHold && try > 0: // unless another comes before it
			ttl = max(req.TTL, req.Place)
		case !isHold && req.Place > 0:
			ttl = req.Place
		case !isHold:
			return driver.Result{Held: q.records[0].public(q.waiting())}, nil
		}
		e := &entry{name: req.Name, owner: req.Owner, until: time.Now().Add(ttl)}
		l, err := s.leaseFor(ctx, leaseSeconds(ttl), e.until)
		if err != nil {
			return res, driver.NotApplied(err)
		}
		s.mu.Lock()
		if s.entries[id] != nil {
			s.mu.Unlock()
			return res, errAgain
		}
		s.entries[id], own.Base = e, s.base.Load()
		s.mu.Unlock()
		value, _ := json.Marshal(own)
		own.key, own.value, own.lease = keys+strconv.Itoa(rand.N(1+20*len(q.records))), string(value), l.id
		conditions := []clientv3.Cmp{
			// It is false if the cluster has lost its data, or somebody has deleted all keys.
			clientv3.Compare(clientv3.Value(s.baseKey), "=", strconv.FormatInt(own.Base, 10)),
			clientv3.Compare(clientv3.CreateRevision(own.key), "=", 0),
		}
		if try == 0 {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(keys), "=", 0).WithPrefix())
		}
		put := clientv3.OpPut(own.key, own.value, clientv3.WithLease(l.id))
		resp, err := s.write(ctx, req.Name, conditions, []clientv3.Op{get, put}, get, clientv3.OpGet(s.baseKey))
		var found queue
		if err == nil {
			found, err = s.decodeQueue(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
		}
		s.mu.Lock()
		if resp != nil && resp.Succeeded {
			own.created, own.modified = found.revision, found.revision
			next = queue{records: append(found.records, own), revision: found.revision, own: own}
			isHold = err == nil && next.waiting() == 0
			if e.record, e.held = own, isHold; !isHold && (req.Place == 0 || err != nil) {
				s.mu.Unlock() // Another has come before it, or cannot be read.
				if _, endErr := s.endEntry(ctx, e, 0, false); endErr != nil {
					return res, fmt.Errorf("an entry that does not hold has not ended: %v", endErr) // The outcome is open.
				}
				if err == nil {
					res.Held = found.records[0].public(found.waiting())
				}
				return res, err
			}
			res = driver.Result{Granted: isHold && ttl >= req.TTL, Token: own.token()}
			if res.Waiting = !res.Granted; res.Waiting {
				e.until, res.Held = e.until.Add(req.Place-ttl), next.records[0].public(next.waiting())
			}
			s.watch(e, next)
			s.mu.Unlock()
			if isHold && res.Waiting { // It has the lease of a place: its owner renews it.
				s.notices.Send(req.Name, req.Owner, res.Token)
			}
			return res, nil
		}
		isOpen := err != nil && !driver.IsNotApplied(err)
		again := try < 2 && isUnusable(err)
		if again || isOpen && !errors.Is(err, rpctypes.ErrNoSpace) {
			// What arrives late must not live as long as the Store. Without space nothing does.
			l.seconds = 0
		}
		if !isOpen { // else Renew tells what has become of it
			s.forget(e)
		}
		s.mu.Unlock()
		switch {
		case again:
		case err != nil:
			return res, err
		case slices.ContainsFunc(found.records, func(r *record) bool { return r.Owner == own.Owner }):
			return res, errAgain
		default:
			q = found
			if err = s.noteBase(ctx, resp.Responses[1].GetResponseRange().Kvs); err != nil {
				return res, err
			}
		}
	}
}

// noteBase notes what is added to create revisions. The first client of a prefix writes it, by its
// clock.
func (s *Store) noteBase(ctx context.Context, kvs []*mvccpb.KeyValue) error {
	if len(kvs) == 0 {
		isAbsent := clientv3.Compare(clientv3.CreateRevision(s.baseKey), "=", 0)
		base := strconv.FormatInt(s.wall().UnixMicro(), 10)
		_, err := s.do(ctx, true, clientv3.OpTxn([]clientv3.Cmp{isAbsent}, []clientv3.Op{clientv3.OpPut(s.baseKey, base)}, nil))
		return driver.NotApplied(err)
	}
	base, err := strconv.ParseInt(string(kvs[0].Value), 10, 64)
	if err != nil || base <= 0 || base > driver.MaxToken {
		return fmt.Errorf("%w: key %q", driver.ErrCorrupt, kvs[0].Key)
	}
	s.base.Store(base)
	return nil
}
