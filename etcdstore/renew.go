package etcdstore

import (
	"cmp"
	"context"
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
	lease   *lease         // that the entry is to have, unless it has one that lasts as long
	end     time.Time      // until which it is to last
	wasOver bool           // Its time was over, so it is lost, unless another Store has renewed it.
	asKnown []clientv3.Cmp // that nothing has changed; none if the queue has to tell what it is
	look    bool
	is      driver.Entry
	err     error
}

// Renew implements [driver.Store]. One keep-alive serves all entries with one TTL. Then a majority
// confirms that keys are as they were last, many in one request. Where one is not, or not known,
// the queue is read.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	ctx, cancel, err := s.begin(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer cancel()
	began, renewals := time.Now(), make([]*renewal, len(reqs))
	for i, req := range reqs {
		r, key := &renewal{RenewRequest: req, end: began.Add(req.TTL)}, id(req.Name, req.Owner)
		renewals[i] = r
		s.mu.Lock()
		if r.entry = s.entries[key]; r.entry == nil { // It was requested through another Store.
			r.entry = &entry{name: req.Name, owner: req.Owner, until: r.end}
			s.entries[key] = r.entry
		}
		s.mu.Unlock()
		if r.lease, r.err = s.leaseFor(ctx, req.TTL); r.err == nil {
			s.beginRenewal(r)
		}
	}
	var group sync.WaitGroup
	for rest := slices.DeleteFunc(slices.Clone(renewals), func(r *renewal) bool { return len(r.asKnown) == 0 }); len(rest) > 0; {
		n, conditions := 0, []clientv3.Cmp(nil)
		for ; n < len(rest) && len(conditions)+len(rest[n].asKnown) < maxOps; n++ {
			conditions = append(conditions, rest[n].asKnown...)
			if n == 0 || rest[n].base != rest[n-1].base {
				conditions = append(conditions, s.isBase(rest[n].base))
			}
		}
		part := rest[:n]
		rest = rest[n:]
		group.Go(func() {
			isSame, err := s.areTrue(ctx, part[0].key, conditions)
			for _, r := range part {
				r.look, r.err = !isSame, err
			}
		})
	}
	group.Wait()
	for _, r := range renewals {
		if r.look && r.err == nil {
			group.Go(func() { r.is, r.err = s.renewByLook(ctx, r) })
		}
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

// beginRenewal records that an entry may last longer, and what it is if nothing has changed.
func (s *Store) beginRenewal(r *renewal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := r.entry
	switch {
	case e.isOver():
		r.wasOver = true
	case e.token != 0 && r.Token != 0 && r.Token != e.token:
		r.is.State = driver.Lost
		return
	case e.until.Before(r.end):
		e.until = r.end
	}
	asLast := clientv3.Compare(clientv3.ModRevision(e.key), "=", e.modified)
	switch {
	case e.token == 0, r.wasOver, r.mustMove(), !e.held && e.before == nil:
		r.look = true
	case e.held:
		r.asKnown = []clientv3.Cmp{asLast}
		r.is = driver.Entry{State: driver.Held, Token: e.token}
	default:
		r.is = driver.Entry{State: driver.Waiting, Token: e.token}
		r.asKnown = []clientv3.Cmp{asLast, clientv3.Compare(clientv3.CreateRevision(e.before.key()), "=", e.before.kv.CreateRevision)}
	}
}

// mustMove reports whether an entry needs another lease. The caller holds Store.mu.
func (r *renewal) mustMove() bool {
	if r.on == r.lease.id && r.lasts.Before(r.end) { // It was kept alive.
		r.lasts = r.end
	}
	return r.lasts.Before(r.end)
}

// areTrue reports whether all conditions are true. It is false also if the server refuses the
// request, because of one of their keys. The server asks a majority because of the Get: it answers
// a request that reads no key from its memory.
func (s *Store) areTrue(ctx context.Context, key string, conditions []clientv3.Cmp) (bool, error) {
	read := []clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly())}
	responses, _, err := s.do(ctx, clientv3.OpTxn(conditions, read, read))
	if isRefusal(err) {
		return false, nil
	}
	return err == nil && responses[0].GetResponseTxn().Succeeded, err
}

// renewByLook reads what an entry is, and gives it the lease of its TTL if it has another: that of
// a place, of another TTL, or of another Store.
func (s *Store) renewByLook(ctx context.Context, r *renewal) (is driver.Entry, err error) {
	for try := 0; ; try++ {
		if err := pause(ctx, try); err != nil {
			return is, err
		}
		ahead, revision, err := s.look(ctx, r.entry)
		if err != nil {
			return is, err
		}
		s.mu.Lock()
		mustMove, e := r.mustMove(), *r.entry
		isLost := revision == 0 || r.wasOver && s.isOurs(e.on) || r.Token != 0 && r.Token != e.token
		switch {
		case revision == 0 && !e.isUnanswered():
			s.forget(r.entry)
		case !isLost && e.until.Before(r.end):
			r.until = r.end
		}
		s.mu.Unlock()
		if isLost {
			return driver.Entry{State: driver.Lost}, nil
		}
		if mustMove {
			ttl, end := r.TTL, r.end
			if !s.isOurs(e.on) { // A request of before, to another Store, may have asked for more.
				began := time.Now()
				left, err := s.remaining(ctx, e.on)
				if err != nil {
					return is, err
				}
				if left > ttl+grain {
					ttl, end = left, began.Add(left)
				}
			}
			lease, err := s.leaseFor(ctx, ttl)
			if err != nil {
				return is, err
			}
			resp, revision, err := s.write(ctx, e.name, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.key), "=", e.modified)},
				[]clientv3.Op{clientv3.OpPut(e.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(lease.id))})
			switch {
			case err != nil:
				return is, err
			case !resp.Succeeded:
				continue
			}
			s.mu.Lock()
			r.on, r.modified, r.lasts = lease.id, revision, end
			if r.until.Before(end) {
				r.until = end
			}
			s.mu.Unlock()
		}
		s.watch(r.entry, nil, 0)
		if is = (driver.Entry{State: driver.Waiting, Token: e.token}); admits(ahead, e.limit) {
			is.State = driver.Held
		}
		return is, nil
	}
}

// look reads the queue of the name of an entry. It records what the entry is, and returns those
// ahead of it as of a revision, which is 0 if there is no such entry.
func (s *Store) look(ctx context.Context, e *entry) (ahead []*record, revision int64, err error) {
	q, err := s.readQueue(ctx, e.name)
	i := q.index(e.owner)
	if err != nil || i < 0 || q.records[i].Kept {
		return nil, 0, err
	}
	own, ahead := q.records[i], q.records[:i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.token == 0 {
		e.key, e.value, e.token, e.limit, e.base = own.key(), string(own.kv.Value), own.token(), own.Limit, own.Base
	}
	if on := clientv3.LeaseID(own.kv.Lease); on != e.on {
		e.on, e.lasts = on, time.Time{}
	}
	e.modified, e.before = own.kv.ModRevision, nil
	if e.held = admits(ahead, e.limit); !e.held && e.limit <= 1 {
		e.before = ahead[i-1]
	}
	return ahead, q.revision, nil
}
