package etcdstore

import (
	"cmp"
	"context"
	"maps"
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
	lease   *lease    // that the entry is to have, unless it has one that lasts as long
	end     time.Time // until which it is to last
	wasOver bool      // Its time was over, so it is lost, unless another Store has renewed it.
	is      driver.Entry
	err     error
}

// Renew implements [driver.Store]. One keep-alive serves all entries with one TTL. The queues are
// read after it, each once, many in one request.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	ctx, cancel, err := s.begin(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer cancel()
	began := time.Now()
	var renewals []*renewal
	byName, first := map[string][]*renewal{}, map[time.Duration]*renewal{} // with a TTL
	for _, req := range reqs {
		r := &renewal{RenewRequest: req, end: began.Add(req.TTL)}
		if of := first[req.TTL]; of != nil {
			r.lease, r.err = of.lease, of.err
		} else {
			r.lease, r.err = s.leaseFor(ctx, req.TTL, false)
			first[req.TTL] = r
		}
		s.beginRenewal(r)
		renewals, byName[r.Name] = append(renewals, r), append(byName[r.Name], r)
	}
	var group sync.WaitGroup
	for part := range slices.Chunk(slices.Collect(maps.Values(byName)), maxOps) {
		group.Go(func() { s.renewTogether(ctx, part) })
	}
	group.Wait()
	entries := make([]driver.Entry, len(reqs))
	for i, r := range renewals {
		if err = cmp.Or(err, r.err); r.err == nil {
			entries[i] = r.is
		}
	}
	return entries, err
}

// beginRenewal has the Store keep an entry for as long as is requested, unless it is lost.
func (s *Store) beginRenewal(r *renewal) {
	key := id(r.Name, r.Owner)
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
}

// renewTogether reads the queues of names in one request, and completes the renewals of each.
func (s *Store) renewTogether(ctx context.Context, names [][]*renewal) {
	var looks []*call
	for _, renewals := range names {
		looks = append(looks, &call{op: s.getEntries(renewals[0].name)})
	}
	err := s.sendAll(ctx, looks...)
	var group sync.WaitGroup
	for i, renewals := range names {
		var q queue
		lookErr := err
		if lookErr == nil {
			q, lookErr = s.queueOf(looks[i])
		}
		for _, r := range renewals {
			if r.err = cmp.Or(r.err, lookErr); r.err == nil {
				group.Go(func() { r.is, r.err = s.renewOne(ctx, r, q) })
			}
		}
	}
	group.Wait()
}

// renewOne tells what an entry is, by its queue, and gives it the lease of its TTL if it has
// another: that of a place, of another TTL, or of another Store.
func (s *Store) renewOne(ctx context.Context, r *renewal, q queue) (is driver.Entry, err error) {
	for try := 0; ; try++ {
		if try > 0 { // It has changed meanwhile.
			if err = pause(ctx, try); err == nil {
				q, err = s.readQueue(ctx, r.name)
			}
			if err != nil {
				return is, err
			}
		}
		ahead, isThere := s.note(r.entry, q)
		s.mu.Lock()
		if r.on == r.lease.id && r.lasts.Before(r.end) { // It was kept alive.
			r.lasts = r.end
		}
		mustMove, e := r.lasts.Before(r.end), *r.entry
		isLost := !isThere || r.wasOver && s.isOurs(e.on) || r.Token != 0 && r.Token != e.token
		switch {
		case !isThere:
			s.forget(r.entry)
		case !isLost && e.until.Before(r.end):
			r.until = r.end
		}
		s.mu.Unlock()
		if isLost {
			return driver.Entry{State: driver.Lost}, nil
		}
		if mustMove {
			isMoved, err := s.move(ctx, r, &e)
			if err != nil {
				return is, err
			}
			if !isMoved {
				continue
			}
		}
		s.watch(r.entry, nil, 0)
		if is = (driver.Entry{State: driver.Waiting, Token: e.token}); admits(ahead, e.limit) {
			is.State = driver.Held
		}
		return is, nil
	}
}

// move gives an entry, as it was read, the lease of its TTL, unless it has changed.
func (s *Store) move(ctx context.Context, r *renewal, e *entry) (isMoved bool, err error) {
	ttl, end := r.TTL, r.end
	if !s.isOurs(e.on) { // A request of before, to another Store, may have asked for more.
		began := time.Now()
		left, err := s.remaining(ctx, e.on)
		if err != nil {
			return false, err
		}
		if left > ttl+grain {
			ttl, end = left, began.Add(left)
		}
	}
	lease, err := s.leaseFor(ctx, ttl, false)
	if err != nil {
		return false, err
	}
	resp, revision, err := s.write(ctx, e.name, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.key), "=", e.modified)},
		[]clientv3.Op{clientv3.OpPut(e.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(lease.id))})
	if err != nil || !resp.Succeeded {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.on, r.modified, r.lasts = lease.id, revision, end
	if r.until.Before(end) {
		r.until = end
	}
	return true, nil
}

// look reads the queue of the name of an entry. It returns those ahead of it as of a revision, which
// is 0 if there is no such entry.
func (s *Store) look(ctx context.Context, e *entry) (ahead []*record, revision int64, err error) {
	q, err := s.readQueue(ctx, e.name)
	if err != nil {
		return nil, 0, err
	}
	ahead, isThere := s.note(e, q)
	if !isThere {
		q.revision = 0
	}
	return ahead, q.revision, nil
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
		e.key, e.value, e.token, e.limit = own.key(), string(own.kv.Value), own.token(), own.Limit
	}
	if on := clientv3.LeaseID(own.kv.Lease); on != e.on {
		e.on, e.lasts = on, time.Time{}
	}
	e.modified, e.held = own.kv.ModRevision, admits(ahead, e.limit)
	return ahead, true
}
