package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// A renewal is one request of a Renew.
type renewal struct {
	driver.RenewRequest
	*entry
	end     time.Time // until which the entry is to last
	wasOver bool      // Its time was over, so it is lost, unless another Store has renewed it.
	byQueue bool      // The queue is read, and not the key alone.
	ahead   queue     // the entries before it, if the queue was read
	is      driver.Entry
	err     error
}

// Renew implements [driver.Store]. One keep-alive serves all entries of one lease, and one read as
// many as a transaction may have.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	err := s.check(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	renewals, bySeconds := make([]renewal, len(reqs)), map[int64][]*renewal{}
	s.mu.Lock()
	for i, req := range reqs {
		e, end := s.entries[[2]string{req.Name, req.Owner}], began.Add(req.TTL)
		if e == nil { // It was requested through another Store.
			e = &entry{name: req.Name, owner: req.Owner, until: end}
			s.entries[[2]string{req.Name, req.Owner}] = e
		}
		renewals[i] = renewal{RenewRequest: req, entry: e, end: end, wasOver: e.isOver()}
		isOther := e.token != 0 && req.Token != 0 && req.Token != e.token
		if e.until.Before(end) && !e.isOver() && !isOther {
			e.until = end
		}
		seconds := leaseSeconds(req.TTL)
		for _, l := range s.leases {
			if l.id == e.on && e.until.After(end) && l.lasts(e.until) {
				seconds = l.seconds // It stays there, for as long as was requested before.
			}
		}
		bySeconds[seconds] = append(bySeconds[seconds], &renewals[i])
	}
	s.mu.Unlock()
	var group sync.WaitGroup
	for seconds, together := range bySeconds {
		group.Go(func() { s.renewTogether(ctx, seconds, together) })
	}
	group.Wait()
	entries := make([]driver.Entry, len(reqs))
	for i, r := range renewals {
		if err = cmp.Or(err, r.err); r.err == nil {
			entries[i] = r.is
		}
		if entries[i].State >= driver.Waiting {
			s.watch(r.entry, r.ahead)
		}
	}
	return entries, err
}

// renewTogether completes renewals that need the same lease.
func (s *Store) renewTogether(ctx context.Context, seconds int64, renewals []*renewal) {
	last := slices.MaxFunc(renewals, func(a, b *renewal) int { return a.end.Compare(b.end) })
	l, err := s.leaseFor(ctx, seconds, last.end)
	if err != nil {
		for _, r := range renewals {
			r.err = err
		}
		return
	}
	var group sync.WaitGroup
	for some := range slices.Chunk(renewals, maxOps) {
		group.Go(func() { s.renewSome(ctx, l, some) })
	}
	group.Wait()
}

// renewSome completes renewals by a read that a majority confirms. A known hold on the lease is one
// still if its key is unchanged. Of what is not, or has changed, the queue is read. A read that the
// server refuses is divided: it does so because of one name.
func (s *Store) renewSome(ctx context.Context, l *lease, renewals []*renewal) {
	var group sync.WaitGroup
	defer group.Wait()
	for len(renewals) > 0 {
		ops := make([]clientv3.Op, len(renewals))
		s.mu.Lock()
		for i, r := range renewals {
			r.byQueue = r.byQueue || !r.held || r.on != l.id || r.modified <= r.moving || r.wasOver ||
				r.Token != 0 && r.Token != r.token
			if ops[i] = clientv3.OpGet(r.key); r.byQueue {
				ops[i] = s.queueOp(r.Name)
			}
		}
		s.mu.Unlock()
		resp, err := s.read(ctx, ops...)
		if n := len(renewals); n > 1 && isRefusal(err) {
			s.renewSome(ctx, l, renewals[:n/2])
			s.renewSome(ctx, l, renewals[n/2:])
			return
		}
		var changed []*renewal
		s.mu.Lock()
		for i, r := range renewals {
			if r.err = err; err != nil {
				continue
			}
			kvs := resp.Responses[i].GetResponseRange().Kvs
			switch {
			case r.byQueue:
				group.Go(func() { r.err = s.renewOne(ctx, r, l, kvs, resp.Header.Revision) })
			case r.modified > r.moving && len(kvs) == 1 && kvs[0].Lease == int64(l.id) &&
				kvs[0].ModRevision == r.modified && string(kvs[0].Value) == r.value:
				r.is = driver.Entry{State: driver.Held, Token: r.token}
			default:
				r.byQueue = true
				changed = append(changed, r)
			}
		}
		s.mu.Unlock()
		renewals = changed
	}
}

// renewOne tells what an entry is, by its queue, and puts it on the lease that it needs if it has
// another: that of a place, of another TTL, or of another Store. That lasts longer than was
// requested if more was requested before, perhaps by another Store.
func (s *Store) renewOne(ctx context.Context, r *renewal, l *lease, kvs []*mvccpb.KeyValue, revision int64) error {
	q, err := s.decodeQueue(kvs, revision)
	if err != nil {
		return err
	}
	i := s.look(q, r.entry)
	isThere := i >= 0 && !q.records[i].Kept
	s.mu.Lock()
	if !isThere {
		s.forget(r.Name, r.Owner)
	}
	e := *r.entry
	s.mu.Unlock()
	if !isThere || r.wasOver && s.isOurs(e.on) || r.Token != 0 && r.Token != e.token ||
		e.token != q.records[i].token() { // The owner has another entry, through another Store.
		r.is = driver.Entry{State: driver.Lost}
		return nil
	}
	if e.on != l.id || e.modified <= e.moving {
		left := time.Until(e.until)
		if !s.isOurs(e.on) {
			if left, err = s.lookAtLease(ctx, e.on); err != nil {
				return err
			}
		}
		if left > r.TTL {
			r.end = time.Now().Add(left)
			if l, err = s.leaseFor(ctx, leaseSeconds(left), r.end); err != nil {
				return err
			}
		}
		s.mu.Lock()
		r.moving = e.modified
		if r.until.Before(r.end) { // before the sweep finds the entry on a lease of this Store
			r.until = r.end
		}
		s.mu.Unlock()
		isUnchanged := clientv3.Compare(clientv3.ModRevision(e.key), "=", e.modified)
		put := clientv3.OpPut(e.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(l.id))
		resp, err := s.write(ctx, e.name, []clientv3.Cmp{isUnchanged}, []clientv3.Op{put})
		if err == nil && !resp.Succeeded { // It is renewed again.
			err = driver.NotApplied(errors.New("the entry has changed meanwhile"))
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		r.on, r.modified = l.id, resp.Header.Revision
		s.mu.Unlock()
	}
	r.ahead = queue{q.records[:i], q.revision}
	if r.is = (driver.Entry{State: driver.Waiting, Token: e.token}); e.held {
		r.is.State = driver.Held
	}
	return nil
}

// look notes what an entry is by the queue of its name. It returns its index, or -1.
func (s *Store) look(q queue, e *entry) int {
	i := q.index(e.owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.revision < e.modified { // The cluster has lost data: its leases may have entries again that nobody wants.
		clear(s.leases)
	}
	if i >= 0 {
		own := q.records[i]
		if e.token == 0 { // These never change: follow reads them without a lock.
			e.key, e.token, e.limit = own.key(), own.token(), own.Limit
		}
		e.value, e.on, e.modified = string(own.kv.Value), clientv3.LeaseID(own.kv.Lease), own.kv.ModRevision
		e.held = i < len(q.holds()) && !own.Kept
	}
	return i
}
