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
	"github.com/holdfast-go/holdfast/internal/retry"
)

var errAgain = errors.New("the owner has an entry already")

// An attempt is an Acquire. What its latest transaction has found is zero before the first one,
// which takes the name to be free.
type attempt struct {
	driver.Request
	isHold bool // It holds, as far as is known.
	anyway bool // It is made whatever has come since, and the reply has the queue.
	lease  *lease
	lasts  time.Time // the lease, at least
	queue  queue
	last   int64 // the last token, if there is a counter of the name
	lastAt int64 // the revision of the counter, or 0
}

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
	case req.Floor > 0 && req.Place > 0:
		return res, fmt.Errorf("%w: a floor and a place", driver.ErrInvalid)
	case req.Floor > s.wall().Add(driver.MaxLead).UnixMicro():
		return res, fmt.Errorf("%w: the floor of the token is too far ahead", driver.ErrInvalid)
	}
	a, isReplaced := &attempt{Request: req}, false
	for try := 0; ; try++ {
		if err := pause(ctx, try); err != nil {
			return res, driver.NotApplied(err)
		}
		ttl := req.TTL
		a.isHold, a.anyway = admits(a.queue.records, req.Limit), try > 0 && req.Place > 0
		switch {
		case a.anyway && a.isHold:
			ttl = max(req.TTL, req.Place)
		case a.anyway:
			ttl = req.Place
		case !a.isHold:
			return driver.Result{Held: a.queue.records[0].public(a.queue.waiting())}, nil
		}
		a.lasts = time.Now().Add(ttl)
		if a.lease, err = s.leaseFor(ctx, ttl, true); err != nil {
			return res, err
		}
		token, err := s.makeEntry(ctx, a)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // The next lease is new.
		case errors.Is(err, rpctypes.ErrPermissionDenied) && !isReplaced && s.mayAcquire(ctx, req.Name):
			s.giveUp(a.lease) // It has a key of somebody else.
			isReplaced = true
		case err != nil:
			return res, err
		case token != 0:
			res = driver.Result{Granted: a.isHold, Waiting: !a.isHold, Token: token}
			if !a.isHold && len(a.queue.records) > 0 {
				res.Held = a.queue.records[0].public(a.queue.waiting())
			}
			return res, nil
		}
	}
}

// makeEntry sends one transaction. It returns the token of the entry, or 0 if it has made none.
func (s *Store) makeEntry(ctx context.Context, a *attempt) (token int64, err error) {
	s.mu.Lock()
	rec := record{Base: s.base, Owner: hashOf(a.Owner), Holder: a.Holder, Since: s.wall().UnixMilli(), Limit: a.Limit, Metadata: a.Metadata}
	s.mu.Unlock()
	var ops []clientv3.Op
	if a.Floor > 0 || a.last > 0 {
		counters, err := s.leaseFor(ctx, countersLast, true)
		if err != nil {
			return 0, err
		}
		rec.Least = max(a.Floor, a.last+1)
		ops = append(ops, clientv3.OpPut(s.tokenKey(a.Name), strconv.FormatInt(rec.Least, 10), clientv3.WithLease(counters.id)))
	}
	slot := 0
	if n := len(a.queue.records); n > 0 {
		slot = rand.N(16 + 4*n) // so that many may come at once
	}
	e := &entry{
		name: a.Name, owner: a.Owner, limit: a.Limit, key: s.entriesKey(a.Name) + strconv.Itoa(slot), value: rec.encode(),
		lease: a.lease, on: a.lease.id, lasts: a.lasts, until: a.lasts,
	}
	ops = append(ops, clientv3.OpPut(e.key, e.value, clientv3.WithLease(e.on)))
	s.mu.Lock()
	if s.entries[id(a.Name, a.Owner)] != nil {
		s.mu.Unlock()
		return 0, errAgain
	}
	s.entries[id(a.Name, a.Owner)] = e
	conditions := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.tokenKey(a.Name)), "=", a.lastAt),
		s.isBase(rec.Base),
	}
	s.mu.Unlock()
	if a.anyway || len(a.queue.records) > 0 {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(e.key), "=", 0))
	}
	if a.anyway {
		ops = append([]clientv3.Op{s.getEntries(a.Name)}, ops...)
	} else {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.entriesKey(a.Name)), "<", a.queue.revision+1).WithPrefix())
	}
	resp, revision, err := s.write(ctx, a.Name, conditions, ops,
		s.getEntries(a.Name), clientv3.OpGet(s.tokenKey(a.Name)), clientv3.OpGet(s.baseKey()))
	if errors.Is(err, rpctypes.ErrNoSpace) { // The server may have applied it.
		if _, _, endErr := s.write(ctx, a.Name, []clientv3.Cmp{e.is()}, []clientv3.Op{clientv3.OpDelete(e.key)}); endErr == nil {
			err = driver.NotApplied(err)
		}
	}
	if err != nil && !driver.IsNotApplied(err) {
		return 0, err // Renew tells what has become of it.
	}
	isMade := err == nil && resp.Succeeded
	if err == nil && (a.anyway || !isMade) {
		err = s.noteFound(a, resp, revision)
	}
	s.mu.Lock()
	if !isMade {
		delete(s.entries, id(a.Name, a.Owner))
		s.mu.Unlock()
		return 0, err
	}
	e.token, e.modified = max(rec.Base+revision, rec.Least), revision
	if a.isHold && !admits(a.queue.records, a.Limit) { // Another has come since.
		a.isHold = false
		e.until = e.until.Add(min(a.Place-a.TTL, 0))
	}
	e.held = a.isHold
	s.mu.Unlock()
	s.watch(e, a.queue.records, revision)
	return max(rec.Base+revision, rec.Least), err
}

// noteFound records the queue that a transaction has found, and the rest if it has made nothing.
func (s *Store) noteFound(a *attempt, resp *pb.TxnResponse, revision int64) (err error) {
	a.queue, err = s.decodeQueue(resp.Responses[0].GetResponseRange().Kvs, revision)
	if err != nil || resp.Succeeded {
		return err
	}
	if a.queue.index(a.Owner) >= 0 {
		return errAgain
	}
	// A counter follows a floor. As long as it lasts, all tokens of the name are above it.
	a.last, a.lastAt = 0, 0
	if counter := resp.Responses[1].GetResponseRange().Kvs; len(counter) > 0 {
		a.last, _ = strconv.ParseInt(string(counter[0].Value), 10, 64) // else 0
		a.lastAt = counter[0].ModRevision
	}
	// Somebody may have deleted all keys of the prefix: there is another base then.
	base := resp.Responses[2].GetResponseRange().Kvs
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(base) == 0 || string(base[0].Value) != strconv.FormatInt(s.base, 10) {
		s.base = 0
	}
	return nil
}

// mayAcquire reports whether the user has the rights that an Acquire needs. The server checks those
// of a transaction that does nothing, too.
func (s *Store) mayAcquire(ctx context.Context, name string) bool {
	_, _, err := s.write(ctx, name, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.baseKey()), "<", 0)},
		[]clientv3.Op{clientv3.OpPut(s.entriesKey(name)+"0", ""), s.getEntries(name), clientv3.OpGet(s.tokenKey(name))})
	return err == nil
}

// pause waits before what is done again, but for the first time.
func pause(ctx context.Context, try int) error {
	if try < 2 {
		return nil
	}
	return retry.Sleep(ctx, retry.Backoff(try-2, 2*time.Millisecond, 100*time.Millisecond))
}
