package etcdstore

import (
	"cmp"
	"context"
	"encoding/json"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (ended bool, err error) {
	if err = s.check(ctx); err != nil {
		return false, err
	}
	s.mu.Lock()
	if e := s.entries[[2]string{req.Name, req.Owner}]; e != nil && e.unwatch != nil {
		e.unwatch()
		e.unwatch = nil
	}
	s.mu.Unlock()
	return s.endEntry(ctx, req, false)
}

// endEntry ends an entry, or has it kept, at the revision that is known: a request that arrives
// late does nothing. A sweep ends none that is on a lease of another Store, which has renewed it.
func (s *Store) endEntry(ctx context.Context, req driver.ReleaseRequest, isSweep bool) (ended bool, err error) {
	s.mu.Lock()
	known := cmp.Or(s.entries[[2]string{req.Name, req.Owner}], &entry{name: req.Name, owner: req.Owner})
	e := *known
	s.mu.Unlock()
	isKept := false
	for isKnown := e.modified > 0 && req.Keep == 0; !ended; isKnown = false {
		end := clientv3.OpDelete(e.key)
		if !isKnown { // It is to be kept, another Store has renewed it, or it is under way.
			q, err := s.readQueue(ctx, req.Name)
			if err != nil {
				return false, driver.NotApplied(err)
			}
			i := s.look(q, known)
			s.mu.Lock()
			e = *known
			s.mu.Unlock()
			if i < 0 || q.records[i].Kept && req.Keep == 0 || isSweep && !s.isOurs(e.on) {
				break
			}
			own := *q.records[i]
			end = clientv3.OpDelete(e.key)
			if isKept = req.Keep > 0 && i < len(q.holds()); isKept { // It gets a lease of its own.
				grant, err := s.client.Grant(clientv3.WithRequireLeader(ctx), leaseSeconds(req.Keep))
				if err != nil {
					return false, driver.NotApplied(storeError(err))
				}
				own.Kept, own.Holder, own.Metadata = true, "", nil
				value, _ := json.Marshal(own)
				end = clientv3.OpPut(e.key, string(value), clientv3.WithLease(grant.ID))
			}
		}
		s.mu.Lock()
		known.moving = max(known.moving, e.modified) // A Renew moves it: this request may arrive later.
		s.mu.Unlock()
		conditions := []clientv3.Cmp{ // The revision may be another's after a loss of data.
			clientv3.Compare(clientv3.ModRevision(e.key), "=", e.modified), clientv3.Compare(clientv3.Value(e.key), "=", e.value),
		}
		resp, err := s.write(ctx, req.Name, conditions, []clientv3.Op{end})
		if err != nil {
			return false, err
		}
		if ended = resp.Succeeded; isSweep && !ended { // It is looked at the next time, unless a Renew is under way.
			s.mu.Lock()
			defer s.mu.Unlock()
			known.modified = 0
			return false, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isSweep || known.isOver() { // else a Renew has brought it back
		s.forget(req.Name, req.Owner)
	}
	return ended && isKept == (req.Keep > 0), nil // A place is not kept.
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) (ended []driver.Record, err error) {
	q, err := s.readQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, r := range q.holds() {
		if token != 0 && token != r.token() {
			continue
		}
		records := []driver.Record{r.public(q.waiting())}
		isUnchanged := clientv3.Compare(clientv3.ModRevision(r.key()), "=", r.kv.ModRevision)
		resp, err := s.write(ctx, name, []clientv3.Cmp{isUnchanged}, []clientv3.Op{clientv3.OpDelete(r.key())})
		if err == nil && !resp.Succeeded { // It has got another lease, or has ended.
			records, err = s.Break(ctx, name, r.token())
		}
		if err != nil {
			return ended, err
		}
		ended = append(ended, records...)
	}
	return ended, nil
}

// A Lock is a lock that is held, as [holdfast.Lock]. With a Config.Prefix, Name must return the
// full name: the prefix and the name.
//
// [holdfast.Lock]: https://pkg.go.dev/github.com/holdfast-go/holdfast#Lock
type Lock interface {
	Name() string
	Token() int64
}

// Held returns the condition that a lock is held, for a transaction of the caller's in the same
// cluster. What such a transaction changes, it changes as the holder, however late it arrives; no
// token need be kept with the data. The lock must have been acquired through this Store, or a Renew
// of it. The condition is false if it is known to be over.
func (s *Store) Held(lock Lock) clientv3.Cmp {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.name == lock.Name() && e.token == lock.Token() && e.held {
			return clientv3.Compare(clientv3.Value(e.key), "=", e.value)
		}
	}
	return clientv3.Compare(clientv3.CreateRevision(s.baseKey), "<", 0)
}
