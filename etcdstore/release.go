package etcdstore

import (
	"cmp"
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (ended bool, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer cancel()
	e := &entry{name: req.Name, owner: req.Owner}
	s.mu.Lock()
	if known := s.entries[[2]string{req.Name, req.Owner}]; known != nil {
		if *e = *known; e.unwatch != nil {
			e.unwatch()
		}
	}
	s.mu.Unlock()
	if req.Keep > 0 {
		if ended, err = s.keep(ctx, req); ended || err != nil {
			return ended, err
		}
	}
	if e.key == "" { // It was requested through another Store.
		q, err := s.readQueue(ctx, req.Name)
		if _, isThere := s.note(e, q); !isThere {
			return false, err
		}
	}
	resp, err := s.write(ctx, req.Name, []clientv3.Cmp{e.is()}, []clientv3.Op{clientv3.OpDelete(e.key)})
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(req.Name, req.Owner)
	return resp.Succeeded && req.Keep == 0, nil // What has nothing to keep is a place, or may be under way.
}

// keep makes a keep of a hold, or sets its end anew, with a lease of its own. It changes the key
// only if nothing else has since it was read, so that a request which arrives late does nothing.
func (s *Store) keep(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	q, err := s.readQueue(ctx, req.Name)
	if err != nil {
		return false, driver.NotApplied(err)
	}
	i := q.index(req.Owner)
	if i < 0 || i >= len(q.holds()) {
		return false, nil
	}
	grant, err := s.client.Grant(clientv3.WithRequireLeader(ctx), leaseSeconds(req.Keep))
	if err != nil {
		return false, driver.NotApplied(storeError(err))
	}
	kept := *q.records[i]
	kept.Kept, kept.Holder, kept.Metadata = true, "", nil
	resp, err := s.write(ctx, req.Name, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(kept.key()), "=", kept.kv.ModRevision)},
		[]clientv3.Op{clientv3.OpPut(kept.key(), kept.encode(), clientv3.WithLease(grant.ID))})
	if err == nil && !resp.Succeeded {
		err = errChanged
	}
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(req.Name, req.Owner)
	return true, nil
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) (ended []driver.Record, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	q, err := s.readQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	holds := slices.DeleteFunc(slices.Clone(q.holds()), func(r *record) bool { return token != 0 && token != r.token() })
	var calls []*call
	for _, r := range holds {
		calls = append(calls, deletion(r.key(), clientv3.Compare(clientv3.CreateRevision(r.key()), "=", r.kv.CreateRevision)))
	}
	if len(calls) == 0 {
		return nil, nil
	}
	if err := s.sendAll(ctx, calls...); err != nil {
		return nil, err
	}
	for i, c := range calls {
		if err = cmp.Or(err, c.err); c.err == nil && c.resp.Succeeded {
			ended = append(ended, holds[i].public(q.waiting()))
		}
	}
	return ended, err
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
			return e.is()
		}
	}
	return s.never()
}
