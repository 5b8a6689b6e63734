package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// A renewal is one request of a Renew.
type renewal struct {
	driver.RenewRequest
	*entry
	end     time.Time // until which the entry is to last
	wasOver bool      // Its time was over, so it is lost, unless another Store has renewed it.
	is      driver.Entry
	err     error
}

// Renew implements [driver.Store]. One keep-alive serves all entries of one lease, and one look at
// its keys all holds on it. The queues of the others are read: what has not the lease that it
// needs, what waits, and what is alone.
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
			s.watch(r.entry, queue{})
		}
	}
	return entries, err
}

// renewTogether completes renewals that need the same lease.
func (s *Store) renewTogether(ctx context.Context, seconds int64, renewals []*renewal) {
	last := slices.MaxFunc(renewals, func(a, b *renewal) int { return a.end.Compare(b.end) })
	l, err := s.leaseFor(ctx, seconds, last.end)
	var isAttached map[string]bool
	if err == nil && len(renewals) > 1 {
		isAttached = s.keysOf(ctx, l.id)
	}
	var group sync.WaitGroup
	defer group.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if l != s.leases[seconds] { // It was given up meanwhile, and has what arrives late.
		isAttached = nil
	}
	having := make(map[string]int, len(s.entries)) // how many entries have a key: a later one may have it now
	for _, e := range s.entries {
		having[e.key]++
	}
	for _, r := range renewals {
		switch {
		case err != nil:
			r.err = err
		case r.held && isAttached[r.key] && having[r.key] == 1 && r.modified > r.moving && !r.wasOver &&
			(r.Token == 0 || r.Token == r.token):
			r.is = driver.Entry{State: driver.Held, Token: r.token}
		default:
			group.Go(func() { r.err = s.renewOne(ctx, r, l) })
		}
	}
}

// keysOf returns the keys on a lease, as they were when a majority confirmed a revision, or later.
// It returns none if that is not known. The members answer without a majority, and one that has led
// may be behind. Its reply has the revision.
func (s *Store) keysOf(ctx context.Context, id clientv3.LeaseID) map[string]bool {
	confirmed, err := s.read(ctx, s.baseKey, clientv3.WithCountOnly())
	if err != nil {
		return nil
	}
	_, resp, err := s.lookAtLease(ctx, id, true)
	if err != nil || resp.Header.Revision < confirmed.Header.Revision {
		return nil
	}
	isThere := make(map[string]bool, len(resp.Keys))
	for _, key := range resp.Keys {
		isThere[string(key)] = true
	}
	return isThere
}

// renewOne tells what an entry is, by its queue, and puts it on the lease that it needs if it has
// another: that of a place, of another TTL, or of another Store. That lasts longer than was
// requested if more was requested before, perhaps by another Store.
func (s *Store) renewOne(ctx context.Context, r *renewal, l *lease) error {
	q, i, err := s.look(ctx, r.entry)
	if err != nil {
		return err
	}
	isThere := i >= 0 && !q.records[i].Kept
	s.mu.Lock()
	if !isThere {
		s.forget(r.Name, r.Owner)
	}
	e := *r.entry
	s.mu.Unlock()
	if !isThere || r.wasOver && s.isOurs(e.on) || r.Token != 0 && r.Token != e.token {
		r.is = driver.Entry{State: driver.Lost}
		return nil
	}
	if e.on != l.id || e.modified <= e.moving {
		left := time.Until(e.until)
		if !s.isOurs(e.on) {
			if left, _, err = s.lookAtLease(ctx, e.on, false); err != nil {
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
	if r.is = (driver.Entry{State: driver.Waiting, Token: e.token}); e.held {
		r.is.State = driver.Held
	}
	return nil
}

// look reads the queue of an entry, and notes what the entry is. It returns its index, or -1.
func (s *Store) look(ctx context.Context, e *entry) (q queue, i int, err error) {
	if q, err = s.readQueue(ctx, e.name); err != nil {
		return q, -1, err
	}
	if i = q.index(e.owner); i >= 0 {
		own := q.records[i]
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.token == 0 { // These never change: follow reads them without a lock.
			e.key, e.token, e.limit = own.key(), own.token(), own.Limit
		}
		e.value, e.on, e.modified = string(own.kv.Value), clientv3.LeaseID(own.kv.Lease), own.kv.ModRevision
		e.held = i < len(q.holds()) && !own.Kept
	}
	return q, i, nil
}
