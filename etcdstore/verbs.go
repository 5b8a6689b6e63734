package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Store]. A read confirms the entries of several requests, and the
// keep-alives of their leases follow it.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	began := time.Now()
	entries := make([]driver.Entry, len(reqs))
	errs := make([]error, (len(reqs)+maxBatch-1)/maxBatch)
	var group sync.WaitGroup
	for i := range errs {
		from, to := i*maxBatch, min((i+1)*maxBatch, len(reqs))
		group.Go(func() { errs[i] = s.renew(ctx, began, reqs[from:to], entries[from:to]) })
	}
	group.Wait()
	return entries, errors.Join(errs...)
}

// renew divides renewals that the server refuses, since it may refuse all because of one.
func (s *Store) renew(ctx context.Context, began time.Time, reqs []driver.RenewRequest, result []driver.Entry) error {
	var gets []clientv3.Op
	for _, req := range reqs {
		gets = append(gets, clientv3.OpGet(s.ownKey(req.Name, req.Owner)), s.getFront(req.Name))
	}
	resp, err := s.read(ctx, gets...)
	if half := len(reqs) / 2; half > 0 && (errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrTooManyOps)) {
		return cmp.Or(s.renew(ctx, began, reqs[:half], result[:half]), s.renew(ctx, began, reqs[half:], result[half:]))
	}
	if err != nil {
		return err
	}
	entries := make([]*entryToProlong, len(reqs))
	for i, req := range reqs {
		own, front := resp.Responses[2*i].GetResponseRange().Kvs, resp.Responses[2*i+1].GetResponseRange().Kvs
		if len(own) == 0 || len(front) == 0 {
			continue
		}
		token, kept := parseOwn(own[0])
		if kept || req.Token != 0 && req.Token != token {
			continue
		}
		p := &entryToProlong{name: req.Name, owner: req.Owner, own: own[0], ttl: req.TTL, is: driver.Entry{State: driver.Held, Token: token}}
		if string(front[0].Key) != s.recKey(req.Name, token) {
			p.is.State = driver.Waiting
		}
		// It may be of another process, or of a request without a reply.
		s.watch(req.Name, req.Owner, false, func(ctx context.Context) {
			s.watchEntry(ctx, req.Name, req.Owner, token, p.is.State == driver.Held, queue{})
		})
		entries[i] = p
	}
	return s.prolong(ctx, began, entries, result)
}

// An entryToProlong is an entry that is to last until its TTL from now at least.
type entryToProlong struct {
	name, owner string
	own         *mvccpb.KeyValue
	ttl         time.Duration
	is          driver.Entry
	lease       *lease
}

// prolong keeps the leases of entries alive where they do not last long enough. An entry with a
// lease that is too short gets another one. An entry that is nil is lost.
func (s *Store) prolong(ctx context.Context, began time.Time, entries []*entryToProlong, result []driver.Entry) error {
	var short []*lease
	s.mu.Lock()
	for _, p := range entries {
		if p == nil {
			continue
		}
		id := clientv3.LeaseID(p.own.Lease)
		p.lease = &lease{id: id} // of another process
		if e := s.entries[[2]string{p.name, p.owner}]; e != nil {
			for _, l := range append(e.doubtful, e.lease) {
				if l != nil && l.id == id {
					p.lease = l
				}
			}
		}
		if p.lease.endsBefore(began.Add(p.ttl)) && (p.lease.seconds == 0 || p.lease.seconds >= int64(p.ttl/time.Second)) {
			short = append(short, p.lease)
		}
	}
	s.mu.Unlock()
	err := s.keepAlive(ctx, short)
	for i, p := range entries {
		switch {
		case p == nil:
			result[i].State = driver.Lost
		case s.lastsUntil(p.lease, began.Add(p.ttl)):
			result[i] = p.is
		case err == nil:
			result[i], err = s.changeLease(ctx, began, p)
		}
	}
	return err
}

// writeOnLease sends a transaction whose keys get a lease that lasts until ttl after began.
func (s *Store) writeOnLease(ctx context.Context, began time.Time, ttl time.Duration, op func(onLease clientv3.OpOption) clientv3.Op) (*lease, *clientv3.TxnResponse, error) {
	for isNew := false; ; isNew = true {
		l, err := s.takeLease(ctx, began, ttl)
		if err != nil {
			return nil, nil, err
		}
		resp, err := s.write(ctx, op(clientv3.WithLease(l.id)))
		switch {
		case isNew:
			return l, resp, err
		case errors.Is(err, rpctypes.ErrPermissionDenied): // The keys were written before.
			s.dropRefused(l)
		case !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return l, resp, err
		}
	}
}

// changeLease gives an entry a lease for a longer TTL.
func (s *Store) changeLease(ctx context.Context, began time.Time, p *entryToProlong) (driver.Entry, error) {
	own := string(p.own.Key)
	l, resp, err := s.writeOnLease(ctx, began, p.ttl, func(onLease clientv3.OpOption) clientv3.Op {
		return clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(own), "=", p.own.ModRevision)},
			[]clientv3.Op{
				clientv3.OpPut(own, "", clientv3.WithIgnoreValue(), onLease),
				clientv3.OpPut(s.recKey(p.name, p.is.Token), "", clientv3.WithIgnoreValue(), onLease),
			}, []clientv3.Op{clientv3.OpGet(own)})
	})
	switch {
	case driver.IsNotApplied(err):
		s.putLease(l)
		return driver.Entry{}, err
	case err != nil:
		s.remember(p.name, p.owner, func(e *ownerState) { e.doubtful = append(e.doubtful, l) })
		return driver.Entry{}, err
	case !resp.Succeeded: // Another request has changed the entry, or ended it.
		s.putLease(l)
		if len(resp.Responses[0].GetResponseRange().Kvs) == 0 {
			return driver.Entry{State: driver.Lost}, nil
		}
		return driver.Entry{}, fmt.Errorf("another request of the owner has changed %q", p.name)
	}
	unused := false
	s.remember(p.name, p.owner, func(e *ownerState) {
		// The lease may be in doubt, or of another process.
		unused = e.lease == p.lease && !slices.Contains(e.doubtful, p.lease)
		e.token, e.lease = p.is.Token, l
	})
	if unused {
		s.putLease(p.lease)
	}
	return p.is, nil
}

// Release implements [driver.Store]. Leases of requests without a reply are revoked, so that these
// fail if they still arrive.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (released bool, err error) {
	if err := s.check(ctx, req.Name, req.Owner); err != nil {
		if req.Owner == "" && errors.Is(err, driver.ErrInvalid) {
			return false, nil
		}
		return false, err
	}
	began := time.Now()
	own, key := s.ownKey(req.Name, req.Owner), [2]string{req.Name, req.Owner}
	var known ownerState
	s.mu.Lock()
	e := s.entries[key]
	if e != nil {
		known = *e
		known.doubtful = slices.Clone(e.doubtful)
		if e.endWatch != nil {
			e.endWatch()
			e.endWatch = nil
		}
	}
	s.mu.Unlock()
	token := known.token
	if token == 0 {
		resp, err := s.read(ctx, clientv3.OpGet(own))
		if err != nil {
			return false, err
		}
		if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			token, _ = parseOwn(kvs[0])
		}
	}
	if token != 0 {
		if req.Keep > 0 {
			released, err = s.keep(ctx, began, req, token)
		} else {
			var resp *clientv3.TxnResponse
			resp, err = s.write(ctx, clientv3.OpTxn(
				[]clientv3.Cmp{clientv3.Compare(clientv3.Value(own), "=", fmt.Sprintf("%016d", token))},
				[]clientv3.Op{clientv3.OpDelete(own), clientv3.OpDelete(s.recKey(req.Name, token))}, nil))
			released = err == nil && resp.Succeeded
		}
		if err != nil {
			return false, err
		}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for _, l := range known.doubtful {
		if err := s.revoke(ctx, l.id); err != nil {
			return false, explain(err, s.unconnected) // The hold may have ended, whatever the reason.
		}
	}
	var unused *lease
	s.mu.Lock()
	// Another request may have changed the entry, or a Release at the same time have ended it.
	if e != nil && e == s.entries[key] && e.token == known.token && e.lease == known.lease && len(e.doubtful) == len(known.doubtful) {
		delete(s.entries, key)
		if e.endWatch != nil { // of a Renew meanwhile
			e.endWatch()
		}
		if !slices.Contains(e.doubtful, e.lease) {
			unused = e.lease
		}
	}
	s.mu.Unlock()
	if released {
		s.putLease(unused)
	} else if unused != nil {
		s.revokeLater(unused) // It may have a key still.
	}
	return released, nil
}

// keep makes a keep of a hold, and ends a place. A keep is made again if nothing has changed it
// since it was read, so that a request which arrives late makes none.
func (s *Store) keep(ctx context.Context, began time.Time, req driver.ReleaseRequest, token int64) (bool, error) {
	own, mine := s.ownKey(req.Name, req.Owner), s.recKey(req.Name, token)
	holds := clientv3.Compare(clientv3.Value(own), "=", fmt.Sprintf("%016d", token))
	conditions := []clientv3.Cmp{holds, absent(s.recKey(req.Name, 0), mine)}
	for {
		kept := record{Since: s.wall().UnixMilli(), Kept: true}
		l, resp, err := s.writeOnLease(ctx, began, req.Keep, func(onLease clientv3.OpOption) clientv3.Op {
			return clientv3.OpTxn(conditions, []clientv3.Op{
				clientv3.OpPut(own, fmt.Sprintf("k%016d", token), onLease),
				clientv3.OpPut(mine, kept.encode(), onLease),
			}, []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{holds},
				[]clientv3.Op{clientv3.OpDelete(own), clientv3.OpDelete(mine)}, []clientv3.Op{clientv3.OpGet(own)})})
		})
		if err != nil || resp.Succeeded {
			return err == nil, err
		}
		s.putLease(l)
		otherwise := resp.Responses[0].GetResponseTxn()
		if otherwise.Succeeded || len(otherwise.Responses[0].GetResponseRange().Kvs) == 0 {
			return false, nil // It was a place, or has ended.
		}
		own := otherwise.Responses[0].GetResponseRange().Kvs[0] // of a keep
		conditions = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(string(own.Key)), "=", own.ModRevision)}
	}
}

// getFront gets the hold or keep of a name, and how many entries there are.
func (s *Store) getFront(name string) clientv3.Op {
	return outermost(s.recKey(name, 0), s.recordsEnd(name), clientv3.SortAscend)
}

// readFront reads the hold or keep of a name, and more. The count is 0 if there is none.
func (s *Store) readFront(ctx context.Context, name string, more ...clientv3.Op) (f found, count int, resp *clientv3.TxnResponse, err error) {
	if err = s.check(ctx, name); err != nil {
		return f, 0, nil, err
	}
	if resp, err = s.read(ctx, append(more, s.getFront(name))...); err != nil {
		return f, 0, nil, err
	}
	front := resp.Responses[len(more)].GetResponseRange()
	if len(front.Kvs) > 0 {
		f, err = s.decode(front.Kvs[0])
	}
	return f, int(front.Count), resp, err
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	for {
		f, count, _, err := s.readFront(ctx, name)
		if err != nil || count == 0 {
			return nil, err
		}
		switch rec, err := s.publish(ctx, f, count-1); {
		case err != nil:
			return nil, err
		case rec.Remaining > 0:
			return []driver.Record{rec}, nil
		}
		// The lease has ended, and the server is about to delete the record.
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// listFanout is how many requests for leases are in flight for a list.
const listFanout = 16

// A listed is a name of a list, or the error of a record.
type listed struct {
	found
	waiting int
	err     error
}

// List implements [driver.Store]. It reads the names at one revision. If that is compacted, it goes
// on at the current one.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		begin, revision := s.prefix+"rec/"+prefix, int64(0)
		end := clientv3.GetPrefixRangeEnd(begin)
		var names []listed // still to be yielded
		last := -1         // the index of the last one that is no error
		for more := true; more; {
			resp, err := s.read(ctx, clientv3.OpGet(begin, clientv3.WithRange(end), clientv3.WithLimit(500), clientv3.WithRev(revision)))
			if errors.Is(err, rpctypes.ErrCompacted) && revision > 0 {
				if revision = 0; len(names) > 0 { // The name may have changed since.
					begin, names, last = s.prefix+"rec/"+names[0].name+"\x00", nil, -1
				}
				continue
			}
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			if revision == 0 { // That of a later reply is the current one.
				revision = resp.Header.Revision
			}
			page := resp.Responses[0].GetResponseRange()
			for _, kv := range page.Kvs {
				begin = string(kv.Key) + "\x00"
				switch f, err := s.decode(kv); {
				case err != nil:
					names = append(names, listed{err: err})
				case last >= 0 && names[last].name == f.name:
					names[last].waiting++
				default:
					last = len(names)
					names = append(names, listed{found: f})
				}
			}
			ready := len(names)
			if more = page.More; more && last >= 0 {
				ready = last // The next page may have more of the last name.
			}
			for part := range slices.Chunk(names[:ready], listFanout) {
				if !s.yieldListed(ctx, part, yield) {
					return
				}
			}
			names, last = names[ready:], min(last-ready, 0)
		}
	}
}

// yieldListed yields names, and reports whether the list goes on.
func (s *Store) yieldListed(ctx context.Context, names []listed, yield func(driver.Record, error) bool) bool {
	recs := make([]driver.Record, len(names))
	var group sync.WaitGroup
	for i := range names {
		if l := &names[i]; l.err == nil {
			group.Go(func() { recs[i], l.err = s.publish(ctx, l.found, l.waiting) })
		}
	}
	group.Wait()
	for i, l := range names {
		switch {
		case l.err != nil:
			if !yield(driver.Record{}, l.err) || !errors.Is(l.err, driver.ErrCorrupt) {
				return false
			}
		case recs[i].Remaining > 0 && !yield(recs[i], nil): // else it has ended
			return false
		}
	}
	return true
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	owners := clientv3.OpGet(s.ownKeys(name), clientv3.WithPrefix())
	for {
		f, count, resp, err := s.readFront(ctx, name, owners)
		if err != nil || count == 0 || token != 0 && token != f.token {
			return nil, err
		}
		rec, err := s.publish(ctx, f, count-1)
		if err != nil {
			return nil, err
		}
		ops := []clientv3.Op{clientv3.OpDelete(string(f.kv.Key))}
		for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
			if token, _ := parseOwn(kv); token == f.token {
				ops = append(ops, clientv3.OpDelete(string(kv.Key)))
			}
		}
		created := clientv3.Compare(clientv3.CreateRevision(string(f.kv.Key)), "=", f.kv.CreateRevision)
		done, err := s.write(ctx, clientv3.OpTxn([]clientv3.Cmp{created}, ops, nil))
		switch {
		case err != nil:
			return nil, err
		case done.Succeeded:
			return []driver.Record{rec}, nil
		}
	}
}
