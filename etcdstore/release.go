package etcdstore

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (ended bool, err error) {
	if err := s.check(ctx, req.Name); err != nil {
		return false, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	e := &entry{name: req.Name, owner: req.Owner}
	s.mu.Lock()
	known := s.entries[id(req.Name, req.Owner)]
	if known != nil {
		if *e = *known; e.unwatch != nil {
			e.unwatch()
		}
	}
	s.mu.Unlock()
	if known == nil { // It was requested through another Store.
		if _, revision, err := s.look(ctx, e); err != nil || revision == 0 && req.Keep == 0 {
			return false, err
		}
	}
	if req.Keep == 0 {
		return s.endEntry(ctx, e, e.is())
	}
	if ended, err = s.keep(ctx, req); ended && known != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(known)
	} else if err == nil && e.key != "" {
		_, err = s.endEntry(ctx, e, e.is()) // It was a place, or may be under way.
	}
	return ended, err
}

// keep makes a keep of a hold, or sets its end anew, with a lease of its own. It changes the key
// only if nothing else has since it was read, so that a request which arrives late does nothing.
func (s *Store) keep(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	grant, err := s.client.Grant(clientv3.WithRequireLeader(ctx), leaseSeconds(req.Keep))
	if err != nil {
		return false, driver.NotApplied(s.storeError(err))
	}
	for {
		q, err := s.readQueue(ctx, req.Name)
		if err != nil {
			return false, driver.NotApplied(err)
		}
		i := q.index(req.Owner)
		if i < 0 || i >= len(q.holds()) {
			s.goWhileOpen(func() { s.revoke(grant.ID) })
			return false, nil
		}
		kept := *q.records[i]
		kept.kept, kept.Holder, kept.Metadata = true, "", nil
		resp, _, err := s.write(ctx, req.Name, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(kept.key()), "=", kept.kv.ModRevision)},
			[]clientv3.Op{clientv3.OpPut(kept.key(), kept.encode(), clientv3.WithLease(grant.ID))}, nil)
		if err != nil || resp.Succeeded {
			return err == nil, err
		}
	}
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) (ended []driver.Record, err error) {
	if err := s.check(ctx, name); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for {
		q, err := s.readQueue(ctx, name)
		if err != nil {
			return ended, err
		}
		holds := slices.DeleteFunc(slices.Clone(q.holds()), func(r *record) bool { return token != 0 && r.token() != token })
		if len(holds) == 0 {
			return ended, nil
		}
		holds = holds[:min(len(holds), maxOps)]
		records, err := s.publish(ctx, holds, q.waiting(), nil)
		if err != nil {
			return ended, err
		}
		var conditions []clientv3.Cmp
		var ops []clientv3.Op
		for _, r := range holds {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(r.key()), "=", r.kv.CreateRevision))
			ops = append(ops, clientv3.OpDelete(r.key()))
		}
		resp, _, err := s.write(ctx, name, conditions, ops, nil)
		switch {
		case err != nil:
			return ended, err
		case resp.Succeeded:
			if ended = append(ended, records...); len(holds) < maxOps {
				return ended, nil
			}
		}
	}
}

// A Lock is a lock that is held, as [holdfast.Lock]. With a Config.Prefix, Name has to return the
// name behind that prefix, prefix included.
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
	return clientv3.Compare(clientv3.CreateRevision(s.baseKey()), "<", 0)
}
