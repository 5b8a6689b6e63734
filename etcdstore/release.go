package etcdstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (ended bool, err error) {
	s.mu.Lock()
	e := cmp.Or(s.entries[[2]string{req.Name, req.Owner}], &entry{name: req.Name, owner: req.Owner})
	s.mu.Unlock()
	return s.endEntry(ctx, e, req.Keep, false)
}

// endEntry ends an entry, or has it kept. Its request is for one revision of the key. The next
// Renew writes the key, so that the request does nothing if it arrives after that. A sweep does not
// end what has been renewed meanwhile, by this Store or another.
func (s *Store) endEntry(ctx context.Context, e *entry, keep time.Duration, isSweep bool) (ended bool, err error) {
	isKept := false
	for looks := keep > 0; !ended; looks = true {
		s.mu.Lock()
		own := e.record
		if looks || !e.isKnown() { // It is to be kept, another Store has renewed it, or it is under way.
			s.mu.Unlock()
			queues, err := s.look(ctx, e)
			if err != nil {
				return false, driver.NotApplied(err)
			}
			s.mu.Lock()
			own = queues[0].own
		}
		isKept = keep > 0 && own != nil && (own.Kept || e.held)
		if own == nil || own.Kept && !isKept || isSweep && (s.leases[own.lease] == nil || !e.isOver()) {
			s.mu.Unlock()
			break
		}
		e.moving = max(e.moving, own.modified)
		s.mu.Unlock()
		end := clientv3.OpDelete(own.key)
		if isKept { // It gets a lease of its own.
			l := &lease{seconds: leaseSeconds(keep)}
			if err := s.prolong(ctx, l); err != nil {
				return false, driver.NotApplied(err)
			}
			kept := *own
			kept.Kept, kept.Holder, kept.Metadata = true, "", nil
			value, _ := json.Marshal(kept)
			end = clientv3.OpPut(own.key, string(value), clientv3.WithLease(l.id))
		}
		resp, err := s.write(ctx, e.name, own.isUnchanged(), []clientv3.Op{end})
		if err != nil {
			return false, err
		}
		ended = resp.Succeeded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isSweep || e.isOver() { // else a Renew has brought it back
		s.forget(e)
	}
	return ended && isKept == (keep > 0), nil // A place is not kept.
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) (ended []driver.Record, err error) {
	queues, err := s.look(ctx, &entry{name: name})
	if err != nil {
		return nil, err
	}
	for _, r := range queues[0].holds() {
		if token != 0 && token != r.token() {
			continue
		}
		records := []driver.Record{r.public(queues[0].waiting())}
		resp, err := s.write(ctx, name, r.isUnchanged(), []clientv3.Op{clientv3.OpDelete(r.key)})
		if err == nil && !resp.Succeeded { // The hold has got another lease, or has ended.
			records, err = s.Break(ctx, name, r.token())
		}
		if err != nil && len(ended) > 0 {
			err = errors.New(err.Error()) // not NotApplied
		}
		if err != nil {
			return ended, err
		}
		ended = append(ended, records...)
	}
	return ended, nil
}

// A Lock is a lock that is held, as one of package holdfast.
type Lock interface {
	FullName() string
	Token() int64
}

// Held returns the condition that a lock is held, for a transaction of the caller's in the same
// cluster. What such a transaction changes, it changes as the holder, however late it arrives; no
// token need be kept with the data. The lock must have been acquired or renewed through this Store.
// The condition is false if the lock is known to be over.
func (s *Store) Held(lock Lock) clientv3.Cmp {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.name == lock.FullName() && e.held && e.record.token() == lock.Token() {
			return clientv3.Compare(clientv3.Value(e.record.key), "=", e.record.value) // A renewal changes the revision.
		}
	}
	return clientv3.Compare(clientv3.CreateRevision(s.baseKey), "<", 0)
}
