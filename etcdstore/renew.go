package etcdstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// A renewal is one request of a Renew.
type renewal struct {
	driver.RenewRequest
	*entry
	end time.Time // until which the entry is to last
	is  driver.Entry
	err error
}

// Renew implements [driver.Store]. One keep-alive serves all entries of one lease, and one read as
// many as a transaction may have.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	err := s.check(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	type kind struct {
		seconds int64 // of the lease that it needs
		held    bool  // It is a hold on it.
	}
	renewals, byKind := make([]renewal, len(reqs)), map[kind][]*renewal{}
	s.mu.Lock()
	for i, req := range reqs {
		e, end := s.entries[[2]string{req.Name, req.Owner}], began.Add(req.TTL)
		if e == nil { // It was requested through another Store.
			e = &entry{name: req.Name, owner: req.Owner, until: end}
			s.entries[[2]string{req.Name, req.Owner}] = e
		}
		if e.record == nil || req.Token == 0 || req.Token == e.record.token() {
			if e.until.Before(end) {
				e.until = end
			}
			end = e.until // No renewal shortens it.
		}
		k := kind{seconds: leaseSeconds(end.Sub(began))}
		for _, l := range s.leases {
			if e.isKnown() && l.id == e.record.lease() && (l.seconds == k.seconds || l.lasts(end)) {
				k = kind{l.seconds, e.held}
			}
		}
		renewals[i] = renewal{RenewRequest: req, entry: e, end: end}
		byKind[k] = append(byKind[k], &renewals[i])
	}
	s.mu.Unlock()
	var group sync.WaitGroup
	for k, together := range byKind {
		last := slices.MaxFunc(together, func(a, b *renewal) int { return a.end.Compare(b.end) })
		for some := range slices.Chunk(together, maxOps) {
			group.Go(func() {
				l, err := s.leaseFor(ctx, k.seconds, last.end)
				if err == nil && s.confirm(ctx, l, some) {
					return
				}
				for _, r := range some {
					group.Go(func() {
						if r.err = err; err == nil {
							r.is, r.err = s.renewOne(ctx, r, l)
						}
					})
				}
			})
		}
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

// confirm completes the renewals of holds that are known on a lease, by a read that a majority
// confirms: they are holds still if their keys are unchanged. It reports whether all of them are.
func (s *Store) confirm(ctx context.Context, l *lease, renewals []*renewal) bool {
	var reads []clientv3.Op
	s.mu.Lock()
	for _, r := range renewals {
		if r.isHeldOn(l) {
			reads = append(reads, clientv3.OpGet(r.record.key()))
		}
	}
	s.mu.Unlock()
	if len(reads) < len(renewals) {
		return false
	}
	resp, err := s.do(ctx, true, clientv3.OpTxn(nil, reads, nil))
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range renewals {
		kvs := resp.Responses[i].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].ModRevision != r.record.kv.ModRevision ||
			!bytes.Equal(kvs[0].Value, r.record.kv.Value) || !r.isHeldOn(l) {
			return false
		}
		r.is = driver.Entry{State: driver.Held, Token: r.record.token()}
	}
	return true
}

// isHeldOn reports whether the entry is known as a hold on a lease. The caller holds Store.mu.
func (r *renewal) isHeldOn(l *lease) bool {
	return r.held && r.isKnown() && r.record.lease() == l.id && (r.Token == 0 || r.Token == r.record.token())
}

// renewOne tells what an entry is, by its queue, and puts it on the lease that it needs if it has
// another: that of a place, of another TTL, or of another Store, which may have asked for more.
func (s *Store) renewOne(ctx context.Context, r *renewal, l *lease) (is driver.Entry, err error) {
	q, err := s.readQueue(ctx, r.Name)
	if err != nil {
		return is, err
	}
	own := s.look(q, r.entry)
	s.mu.Lock()
	held, known := r.held, r.isKnown()
	if own == nil || own.Kept {
		s.forget(r.entry)
	}
	s.mu.Unlock()
	if own == nil || own.Kept || r.Token != 0 && r.Token != own.token() {
		return driver.Entry{State: driver.Lost}, nil
	}
	if is = (driver.Entry{State: driver.Waiting, Token: own.token()}); held {
		is.State = driver.Held
	}
	if known && own.lease() == l.id {
		return is, nil
	}
	if !s.isOurs(own.lease()) {
		left, err := s.lookAtLease(ctx, own.lease())
		if end := time.Now().Add(left); err == nil && r.end.Before(end) {
			r.end = end
			l, err = s.leaseFor(ctx, leaseSeconds(left), end)
		}
		if err != nil {
			return is, err
		}
	}
	s.mu.Lock()
	r.moving = max(r.moving, own.kv.ModRevision)
	if r.until.Before(r.end) { // before the sweep finds the entry on a lease of this Store
		r.until = r.end
	}
	s.mu.Unlock()
	put := clientv3.OpPut(own.key(), "", clientv3.WithIgnoreValue(), clientv3.WithLease(l.id))
	resp, err := s.write(ctx, r.Name, own.isUnchanged(), []clientv3.Op{put})
	if err == nil && !resp.Succeeded { // It is renewed again.
		err = driver.NotApplied(errors.New("the entry has changed meanwhile"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		r.record = own.moved(l.id, resp.Header.Revision)
	} else if errors.Is(err, rpctypes.ErrPermissionDenied) { // It may have a key of somebody else.
		s.giveUp(l)
	}
	return is, err
}

// look notes what an entry is by the queue of its name. It returns its record, or nil, also if the
// owner has another entry by now, through another Store.
func (s *Store) look(q queue, e *entry) *record {
	own := q.of(e.owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.record != nil && q.revision < e.record.kv.ModRevision {
		clear(s.leases) // The cluster has lost data: its leases may have entries again that nobody wants.
	}
	if own == nil || e.record != nil && own.token() != e.record.token() {
		return nil
	}
	e.record, e.held = own, slices.Contains(q.holds(), own) && !own.Kept
	return own
}
