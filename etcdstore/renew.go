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

// errChanged is the answer of a renewal that is to be sent again.
var errChanged = driver.NotApplied(errors.New("the entry has changed meanwhile"))

// A renewal is one request of a Renew.
type renewal struct {
	driver.RenewRequest
	*entry
	lease     *lease    // of its TTL
	end       time.Time // until which the entry is to last
	wasOver   bool      // Its time was over, so it is lost, unless another Store has renewed it.
	isSettled bool      // It is a hold that needs no more than to be as known.
	is        driver.Entry
	err       error
}

// Renew implements [driver.Store]. One keep-alive serves all entries with one TTL. After it, one
// request shows whether many holds are as they are known. Of other entries it reads the queues.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	began := time.Now()
	renewals, first := make([]renewal, len(reqs)), map[time.Duration]*renewal{} // with a TTL
	for i, req := range reqs {
		r := &renewals[i]
		r.RenewRequest, r.end = req, began.Add(req.TTL)
		if of := first[req.TTL]; of != nil {
			r.lease, r.err = of.lease, of.err
		} else {
			r.lease, r.err = s.leaseFor(ctx, req.TTL)
			first[req.TTL] = r
		}
		s.beginRenewal(r)
	}
	var group sync.WaitGroup
	for part := range slices.Chunk(renewals, maxOps-1) {
		group.Go(func() { s.renewTogether(ctx, part) })
	}
	group.Wait()
	entries := make([]driver.Entry, len(reqs))
	for i := range renewals {
		if err = cmp.Or(err, renewals[i].err); renewals[i].err == nil {
			entries[i] = renewals[i].is
		}
	}
	return entries, err
}

// beginRenewal has the Store keep an entry for as long as is requested, unless it is lost.
func (s *Store) beginRenewal(r *renewal) {
	key := [2]string{r.Name, r.Owner}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.entry = s.entries[key]; r.entry == nil { // It was requested through another Store.
		r.entry = &entry{name: r.Name, owner: r.Owner, until: r.end}
		s.entries[key] = r.entry
	}
	isOther := r.token != 0 && r.Token != 0 && r.Token != r.token
	if r.wasOver = r.isOver(); !r.wasOver && !isOther && r.until.Before(r.end) {
		r.until = r.end
	}
	r.isSettled = r.err == nil && !r.wasOver && !isOther && r.held && r.unwatch != nil && s.mayStay(r)
}

// mayStay reports whether an entry may stay on its lease: on that of its TTL, or on another as long
// as was requested before, unless a move that has no answer may come yet. The caller holds s.mu.
func (s *Store) mayStay(r *renewal) bool {
	l := s.leaseOf(r.on)
	return l != nil && r.modified > r.moving && (l == r.lease || r.until.After(r.end) && l.lasts(r.until))
}

// renewTogether completes renewals by one request. It divides them if the server refuses that, and
// reads all queues if one of the holds is not as known.
func (s *Store) renewTogether(ctx context.Context, renewals []renewal) {
	var conditions []clientv3.Cmp
	ops := []clientv3.Op{clientv3.OpGet(s.baseKey(), clientv3.WithCountOnly())} // A majority confirms what reads.
	reads := map[string]int{}                                                   // the index of the queue of a name
	base := int64(0)
	s.mu.Lock()
	for i := range renewals {
		r := &renewals[i]
		if r.isSettled && base == 0 { // Revisions are only those of one cluster.
			base = r.base
			conditions = append(conditions, s.isBase(base))
		}
		if r.isSettled = r.isSettled && r.base == base; r.isSettled {
			conditions = append(conditions, r.isAsKnown())
		} else if r.err == nil && reads[r.Name] == 0 {
			reads[r.Name] = len(ops)
			ops = append(ops, s.getEntries(r.Name))
		}
	}
	s.mu.Unlock()
	if len(conditions)+len(reads) == 0 {
		return
	}
	resp, err := s.read(ctx, conditions, ops...)
	if n := len(renewals); n > 1 && isRefusal(err) {
		s.renewTogether(ctx, renewals[:n/2])
		s.renewTogether(ctx, renewals[n/2:])
		return
	}
	if err == nil && !resp.Succeeded {
		for i := range renewals {
			renewals[i].isSettled = false
		}
		s.renewTogether(ctx, renewals)
		return
	}
	queues, corrupt := map[string]queue{}, map[string]error{}
	if err == nil {
		for name, i := range reads {
			queues[name], corrupt[name] = s.decodeQueue(resp.Responses[i].GetResponseRange().Kvs, resp.Header.Revision)
		}
	}
	var group sync.WaitGroup
	for i := range renewals {
		r := &renewals[i]
		if r.err = cmp.Or(r.err, err, corrupt[r.Name]); r.err != nil {
			continue
		}
		if r.is = (driver.Entry{State: driver.Held, Token: r.token}); !r.isSettled {
			group.Go(func() { r.is, r.err = s.renewOne(ctx, r, queues[r.Name]) })
		}
	}
	group.Wait()
}

// renewOne tells what an entry is, by its queue, and gives it the lease of its TTL if it has
// another: that of a place, of another TTL, or of another Store.
func (s *Store) renewOne(ctx context.Context, r *renewal, q queue) (driver.Entry, error) {
	_, isThere := s.note(r.entry, q)
	s.mu.Lock()
	if !isThere {
		s.forget(r.Name, r.Owner)
	}
	e, mayStay := *r.entry, s.mayStay(r)
	s.mu.Unlock()
	if !isThere || r.wasOver && s.isOurs(e.on) || r.Token != 0 && r.Token != e.token {
		return driver.Entry{State: driver.Lost}, nil
	}
	if !mayStay {
		if err := s.move(ctx, r, &e); err != nil {
			return driver.Entry{}, err
		}
	}
	s.watch(r.entry, queue{})
	if e.held {
		return driver.Entry{State: driver.Held, Token: e.token}, nil
	}
	return driver.Entry{State: driver.Waiting, Token: e.token}, nil
}

// move puts an entry on the lease of its TTL, or on a longer one if more time was requested before,
// perhaps by another Store. It returns errChanged if the entry has changed since it was read.
func (s *Store) move(ctx context.Context, r *renewal, e *entry) (err error) {
	l, end, began := r.lease, r.end, time.Now()
	left := e.until.Sub(began)
	if !s.isOurs(e.on) {
		if left, err = s.remaining(ctx, e.on); err != nil {
			return err
		}
	}
	if left > r.TTL {
		end = began.Add(left)
		if l, err = s.leaseFor(ctx, left); err != nil {
			return err
		}
	}
	s.mu.Lock()
	r.moving = e.modified
	s.mu.Unlock()
	resp, err := s.write(ctx, e.name, []clientv3.Cmp{e.isAsKnown()},
		[]clientv3.Op{clientv3.OpPut(e.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(l.id))})
	if err == nil && !resp.Succeeded {
		err = errChanged
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.on, r.modified = l.id, resp.Header.Revision
	if r.until.Before(end) {
		r.until = end
	}
	return nil
}

// note records what an entry is by its queue, and returns those ahead of it.
func (s *Store) note(e *entry, q queue) (ahead []*record, isThere bool) {
	i := q.index(e.owner)
	if i < 0 || q.records[i].Kept {
		return nil, false
	}
	own, ahead := q.records[i], q.records[:i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.token == 0 {
		e.key, e.value, e.base, e.token, e.limit = own.key(), string(own.kv.Value), own.Base, own.token(), own.Limit
	}
	e.on, e.modified, e.held = clientv3.LeaseID(own.kv.Lease), own.kv.ModRevision, admits(ahead, e.limit)
	return ahead, true
}
