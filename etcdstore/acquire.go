package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

var errAgain = errors.New("the owner has an entry already")

// An attempt is an Acquire. What its latest transaction has found is zero before the first one,
// which takes the name to be free.
type attempt struct {
	driver.Request
	*entry
	isHold bool // to be made, and not a place
	lease  *lease
	queue  queue
	last   int64 // the last token, if there is a counter of the name
	lastAt int64 // the revision of the counter, or 0
}

// Acquire implements [driver.Store].
//
// One transaction takes a name that is free. Otherwise the reply has the queue. Then the next one
// makes a hold, if that would hold and nothing has come since, or a place, whatever has come.
// Another follows only if that one has changed nothing.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	if err := s.checkAcquire(ctx, &req); err != nil {
		return res, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	a := &attempt{Request: req, entry: &entry{name: req.Name, owner: req.Owner, limit: req.Limit}}
	s.mu.Lock()
	again := s.entries[id(req.Name, req.Owner)] != nil
	s.mu.Unlock()
	if again {
		return res, errAgain
	}
	for replaced := false; ; {
		ttl := req.TTL
		if a.isHold = admits(a.queue.records, req.Limit); !a.isHold {
			ttl = req.Place
		}
		if ttl == 0 {
			holds, err := s.publish(ctx, a.queue.records[:1], a.queue.waiting(), nil)
			if err == nil {
				res.Held = holds[0]
			}
			return res, err
		}
		if a.lease, err = s.leaseFor(ctx, ttl); err != nil {
			return res, driver.NotApplied(err)
		}
		made, err := s.makeEntry(ctx, a, ttl)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
		case errors.Is(err, rpctypes.ErrPermissionDenied) && !replaced:
			s.replace(a.lease) // It may have a key of somebody else, which no new lease has.
			replaced = true
		case err != nil:
			return res, err
		case made && a.isHold:
			return driver.Result{Granted: true, Token: a.token}, nil
		case made:
			res = driver.Result{Waiting: true, Token: a.token}
			if len(a.queue.records) > 0 {
				res.Held = a.queue.records[0].public(a.queue.waiting())
			}
			return res, nil
		}
	}
}

func (s *Store) checkAcquire(ctx context.Context, req *driver.Request) error {
	switch err := s.check(ctx, req.Name); {
	case err != nil:
		return err
	case req.Limit < 0 || req.Limit > driver.Shared:
		return fmt.Errorf("%w: a limit of %d", driver.ErrInvalid, req.Limit)
	case req.Tokens > 1:
		return fmt.Errorf("%w: a grant has one token", driver.ErrInvalid)
	case req.Floor > 0 && req.Place > 0:
		return fmt.Errorf("%w: a floor and a place", driver.ErrInvalid)
	case req.Floor > s.wall().Add(driver.MaxLead).UnixMicro():
		return fmt.Errorf("%w: the floor of the token is too far ahead", driver.ErrInvalid)
	}
	return nil
}

// makeEntry sends one transaction. It reports whether that has made the entry.
func (s *Store) makeEntry(ctx context.Context, a *attempt, ttl time.Duration) (made bool, err error) {
	name := a.Name
	rec := record{Base: a.lease.base, Owner: hashOf(a.Owner), Holder: a.Holder, Since: s.wall().UnixMilli(), Limit: a.Limit, Metadata: a.Metadata}
	var puts []clientv3.Op
	if a.Floor > 0 || a.last > 0 {
		counters, err := s.leaseFor(ctx, countersLast)
		if err != nil {
			return false, driver.NotApplied(err)
		}
		rec.Least = max(a.Floor, a.last+1)
		puts = append(puts, clientv3.OpPut(s.tokenKey(name), strconv.FormatInt(rec.Least, 10), clientv3.WithLease(counters.id)))
	}
	slot := 0
	if n := len(a.queue.records); n > 0 {
		slot = rand.N(16 + 4*n) // so that many may come at once
	}
	a.key, a.value = s.slotKey(name, slot), rec.encode()
	puts = append(puts, clientv3.OpPut(a.key, a.value, clientv3.WithLease(a.lease.id)))
	s.mu.Lock()
	a.entry.lease, a.until, a.held = a.lease, time.Now().Add(ttl), a.isHold
	s.entries[id(name, a.Owner)] = a.entry
	conditions := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(a.key), "=", 0),
		clientv3.Compare(clientv3.ModRevision(s.epochKey(a.lease)), "=", a.lease.epoch),
		clientv3.Compare(clientv3.ModRevision(s.tokenKey(name)), "=", a.lastAt),
	}
	s.mu.Unlock()
	if a.isHold {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.entriesKey(name)), "<", a.queue.revision+1).WithRange(s.entriesEnd(name)))
	} else {
		puts = append([]clientv3.Op{s.getEntries(name)}, puts...)
	}
	s.sweeper.Do(func() { s.goWhileOpen(s.endUnrenewed) })
	resp, revision, err := s.write(ctx, name, conditions, puts, []clientv3.Op{
		s.getEntries(name), clientv3.OpGet(s.tokenKey(name)), clientv3.OpGet(s.epochKey(a.lease)),
	})
	if errors.Is(err, rpctypes.ErrNoSpace) { // The server may have applied it.
		if _, _, endErr := s.write(ctx, name, []clientv3.Cmp{a.is()}, []clientv3.Op{clientv3.OpDelete(a.key)}, nil); endErr == nil {
			err = driver.NotApplied(err)
		}
	}
	if err != nil && !driver.IsNotApplied(err) {
		return false, err // Renew tells what has become of it.
	}
	s.mu.Lock()
	if made = err == nil && resp.Succeeded; made {
		a.token = max(rec.Base+revision, rec.Least)
	} else {
		s.forget(a.entry)
	}
	s.mu.Unlock()
	if err != nil {
		return false, err
	}
	if !made || !a.isHold {
		err = s.noteFound(a, resp, revision)
	}
	if made {
		s.watch(a.entry, a.queue.records, revision)
	}
	return made, err
}

// noteFound records what a transaction has found that has made a place or nothing.
func (s *Store) noteFound(a *attempt, resp *pb.TxnResponse, revision int64) (err error) {
	a.queue, err = s.decodeQueue(resp.Responses[0].GetResponseRange().Kvs, revision)
	if err != nil || resp.Succeeded {
		return err
	}
	if a.queue.index(a.Owner) >= 0 {
		return errAgain
	}
	// A counter follows a floor. As long as it lasts, all tokens of the name are above it.
	if counter := resp.Responses[1].GetResponseRange().Kvs; len(counter) > 0 {
		a.last, _ = strconv.ParseInt(string(counter[0].Value), 10, 64) // else 0
		a.lastAt = counter[0].ModRevision
	} else {
		a.last, a.lastAt = 0, 0
	}
	if epoch := resp.Responses[2].GetResponseRange().Kvs; len(epoch) > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.lease.epoch = max(a.lease.epoch, epoch[0].ModRevision)
	}
	return nil
}
