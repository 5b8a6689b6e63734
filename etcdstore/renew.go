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

// A renewal is one request of a Renew, of an entry that is known.
type renewal struct {
	*entry
	lease  *lease  // that it is to have
	before *record // as in the entry
	own    call    // for its key
	ahead  call    // for that of before
}

var errOtherLease = errors.New("the entry has got another lease")

// Renew implements [driver.Store]. One keep-alive serves all entries with one TTL, and a majority
// confirms that each of them is there. An entry gets the lease of its TTL if it has another: that
// of a place, of another TTL, or of another Store. One that lasts longer stays where it is.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) (entries []driver.Entry, err error) {
	entries = make([]driver.Entry, len(reqs))
	ctx, cancel := bounded(ctx)
	defer cancel()
	began := time.Now()
	var calls []*call
	renewals := make([]*renewal, len(reqs)) // nil where nothing is sent
	for i, req := range reqs {
		e, knownErr := s.known(ctx, req)
		if knownErr == nil && (e == nil || req.Token != 0 && req.Token != e.token) { // The token stays the same.
			entries[i].State = driver.Lost
			continue
		}
		l, leaseErr := s.leaseFor(ctx, req.TTL)
		if err = cmp.Or(err, knownErr, leaseErr); knownErr != nil || leaseErr != nil {
			continue
		}
		r := &renewal{entry: e, lease: l}
		renewals[i] = r
		r.own.op = s.beginRenewal(r, began.Add(req.TTL))
		if calls = append(calls, &r.own); r.before != nil {
			r.ahead.op = clientv3.OpGet(r.before.key(), clientv3.WithKeysOnly())
			calls = append(calls, &r.ahead)
		}
	}
	var group sync.WaitGroup
	for part := range slices.Chunk(calls, maxOps) {
		group.Go(func() { s.sendTogether(ctx, part) })
	}
	group.Wait()
	for i, r := range renewals {
		if r != nil {
			var endErr error
			entries[i], endErr = s.endRenewal(ctx, r)
			err = cmp.Or(err, endErr)
		}
	}
	return entries, err
}

// known returns what this Store knows of an entry. It finds out about one that was requested
// through another Store, or whose Acquire has no answer. It returns nil if there is none.
func (s *Store) known(ctx context.Context, req driver.RenewRequest) (*entry, error) {
	if err := s.check(ctx, req.Name); err != nil {
		return nil, err
	}
	e := &entry{name: req.Name, owner: req.Owner}
	s.mu.Lock()
	if known := s.entries[id(e.name, e.owner)]; known != nil {
		e = known
	}
	isAnswered := e.token != 0
	s.mu.Unlock()
	if isAnswered {
		return e, nil
	}
	if _, revision, err := s.look(ctx, e); revision == 0 {
		return nil, err
	}
	return e, nil
}

// beginRenewal records that an entry may last until end from now on, and on which lease, and
// returns the operation for that.
func (s *Store) beginRenewal(r *renewal, end time.Time) clientv3.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[id(r.name, r.owner)] = r.entry
	r.before = r.entry.before
	stays := r.moving == nil && r.entry.lease != nil && (r.entry.lease == r.lease || r.until.After(end))
	if r.until.Before(end) {
		r.until = end
	}
	if stays {
		return clientv3.OpGet(r.key)
	}
	r.moving = r.lease
	return clientv3.OpTxn([]clientv3.Cmp{r.is()},
		[]clientv3.Op{clientv3.OpPut(r.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(r.lease.id))}, nil)
}

// endRenewal returns what an entry is by the response to its operation. A hold stays one, and a
// place waits as long as the entry before it is there; otherwise the queue tells.
func (s *Store) endRenewal(ctx context.Context, r *renewal) (is driver.Entry, err error) {
	if r.own.err != nil {
		return is, r.own.err
	}
	move, kvs := r.own.resp.GetResponseTxn(), r.own.resp.GetResponseRange().GetKvs()
	isThere := move.GetSucceeded() || len(kvs) > 0 && string(kvs[0].Value) == r.value
	s.mu.Lock()
	switch {
	case !isThere:
		s.forget(r.entry)
	case move != nil:
		r.entry.lease, r.moving = r.lease, nil
	case r.entry.lease == nil || kvs[0].Lease != int64(r.entry.lease.id): // Another Store has moved it.
		r.moving = r.lease
		s.mu.Unlock()
		return is, errOtherLease
	}
	is = driver.Entry{State: driver.Waiting, Token: r.token}
	isHeld, waits := r.held, false
	if r.before != nil && r.ahead.err == nil {
		kvs := r.ahead.resp.GetResponseRange().Kvs
		waits = len(kvs) > 0 && kvs[0].CreateRevision == r.before.kv.CreateRevision
	}
	s.mu.Unlock()
	switch {
	case !isThere:
		return driver.Entry{State: driver.Lost}, nil
	case !isHeld && !waits:
		ahead, revision, err := s.look(ctx, r.entry)
		if err != nil {
			return driver.Entry{}, err
		}
		if revision == 0 {
			return driver.Entry{State: driver.Lost}, nil
		}
		isHeld = admits(ahead, r.limit)
	}
	if isHeld {
		is.State = driver.Held
	}
	s.watch(r.entry, nil, 0) // if it is of another Store
	return is, nil
}

// look reads the queue of the name of an entry. It records what the entry is, and returns those
// ahead of it as of a revision, which is 0 if there is no such entry.
func (s *Store) look(ctx context.Context, e *entry) (ahead []*record, revision int64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	q, err := s.readQueue(ctx, e.name)
	i := q.index(e.owner)
	if err != nil || i < 0 || q.records[i].kept {
		return nil, 0, err
	}
	ahead = q.records[:i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := q.records[i]; e.token == 0 {
		e.key, e.value, e.token, e.limit = own.key(), string(own.kv.Value), own.token(), own.Limit
	}
	e.before = nil
	if e.held = admits(ahead, e.limit); !e.held && e.limit <= 1 {
		e.before = ahead[i-1]
	}
	return ahead, q.revision, nil
}
