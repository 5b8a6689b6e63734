package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// errChanged is the answer to what is to be sent again.
var errChanged = driver.NotApplied(errors.New("the entry has changed meanwhile"))

// A renewal is one request of a Renew.
type renewal struct {
	driver.RenewRequest
	*entry
	end     time.Time // until which the entry is to last
	wasOver bool      // Its time was over, so it is lost, unless another Store has renewed it.
	is      driver.Entry
	err     error
}

// Renew implements [driver.Store]. One keep-alive serves all entries of one lease. After it, one
// read shows since when nobody else has changed what is on the lease. Of entries that are not known
// as holds since then it reads the queues, and of each hold once in a TTL, whatever is known.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	began := time.Now()
	renewals, bySeconds := make([]renewal, len(reqs)), map[int64][]*renewal{}
	s.mu.Lock()
	for i, req := range reqs {
		e, end := s.entries[[2]string{req.Name, req.Owner}], began.Add(req.TTL)
		if e == nil { // It was requested through another Store.
			e = &entry{name: req.Name, owner: req.Owner, until: end}
			s.entries[[2]string{req.Name, req.Owner}] = e
		}
		renewals[i] = renewal{RenewRequest: req, entry: e, end: end, wasOver: e.isOver()}
		isOther := e.token != 0 && req.Token != 0 && req.Token != e.token
		if e.until.Before(end) && !e.isOver() && !isOther {
			e.until = end
		}
		seconds := leaseSeconds(req.TTL)
		if l := s.leaseOf(e.on); l != nil && e.until.After(end) && l.lasts(e.until) {
			seconds = l.seconds // It stays there, for as long as was requested before.
		}
		bySeconds[seconds] = append(bySeconds[seconds], &renewals[i])
	}
	s.mu.Unlock()
	var group sync.WaitGroup
	for seconds, together := range bySeconds {
		group.Go(func() { s.renewTogether(ctx, seconds, together) })
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

// renewTogether completes renewals that need the same lease.
func (s *Store) renewTogether(ctx context.Context, seconds int64, renewals []*renewal) {
	end, since := time.Time{}, int64(math.MaxInt64)
	for _, r := range renewals {
		if r.end.After(end) {
			end = r.end
		}
	}
	l, err := s.leaseFor(ctx, seconds, end)
	isKnown := func(r *renewal) bool {
		return err == nil && r.held && r.unwatch != nil && r.on == l.id && r.modified > r.moving &&
			!r.wasOver && (r.Token == 0 || r.Token == r.token) && time.Since(r.looked) < r.TTL*3/4
	}
	s.mu.Lock()
	hasKnown := slices.ContainsFunc(renewals, isKnown)
	s.mu.Unlock()
	if hasKnown {
		since = s.unchangedSince(ctx, l)
	}
	var group sync.WaitGroup
	s.mu.Lock()
	for _, r := range renewals {
		switch {
		case err != nil:
			r.err = err
		case isKnown(r) && r.seen >= since:
			r.is = driver.Entry{State: driver.Held, Token: r.token}
		default:
			group.Go(func() { r.err = s.renewOne(ctx, r, l) })
		}
	}
	s.mu.Unlock()
	group.Wait()
}

// unchangedSince returns the revision since which this Store alone has changed what is on a lease:
// that of the mark of the lease, which others delete as they change something. If there is no mark
// it makes one, and if there can be none the answer is above all revisions.
func (s *Store) unchangedSince(ctx context.Context, l *lease) int64 {
	kvs, _, err := s.read(ctx, s.markKey(l.id))
	if err == nil && len(kvs) > 0 {
		return kvs[0].ModRevision
	}
	if err == nil {
		put := clientv3.OpPut(s.markKey(l.id), "", clientv3.WithLease(l.id))
		if resp, err := s.write(ctx, s.markKey(l.id), nil, []clientv3.Op{put}); err == nil {
			return resp.Header.Revision
		}
	}
	return math.MaxInt64
}

// unmark returns what tells another Store of a change on its lease, and nothing if it is this one.
func (s *Store) unmark(id clientv3.LeaseID) []clientv3.Op {
	if s.isOurs(id) {
		return nil
	}
	return []clientv3.Op{clientv3.OpDelete(s.markKey(id))}
}

// renewOne tells what an entry is, by its queue, and puts it on the lease that it needs if it has
// another: that of a place, of another TTL, or of another Store. That lasts longer than was
// requested if more was requested before, perhaps by another Store.
func (s *Store) renewOne(ctx context.Context, r *renewal, l *lease) error {
	began := time.Now()
	q, err := s.readQueue(ctx, r.Name)
	if err != nil {
		return err
	}
	_, isThere := s.note(r.entry, q)
	s.mu.Lock()
	if r.looked = began; !isThere {
		s.forget(r.Name, r.Owner)
	}
	e, own := *r.entry, s.leaseOf(r.on)
	mayStay := own != nil && e.modified > e.moving && (own == l || e.until.After(r.end) && own.lasts(e.until))
	s.mu.Unlock()
	if !isThere || r.wasOver && s.isOurs(e.on) || r.Token != 0 && r.Token != e.token {
		r.is = driver.Entry{State: driver.Lost}
		return nil
	}
	if !mayStay {
		left := time.Until(e.until)
		if !s.isOurs(e.on) {
			if left, err = s.remaining(ctx, e.on); err != nil {
				return err
			}
		}
		if left > r.TTL {
			r.end = time.Now().Add(left)
			if l, err = s.leaseFor(ctx, leaseSeconds(left), r.end); err != nil {
				return err
			}
		}
		s.mu.Lock()
		r.moving = e.modified
		s.mu.Unlock()
		isUnchanged := clientv3.Compare(clientv3.ModRevision(e.key), "=", e.modified)
		put := clientv3.OpPut(e.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(l.id))
		resp, err := s.write(ctx, e.name, []clientv3.Cmp{isUnchanged}, append(s.unmark(e.on), put))
		if err == nil && !resp.Succeeded {
			err = errChanged
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		r.on, r.modified, r.seen = l.id, resp.Header.Revision, resp.Header.Revision
		if r.until.Before(r.end) {
			r.until = r.end
		}
		s.mu.Unlock()
	}
	s.watch(r.entry, queue{})
	if r.is = (driver.Entry{State: driver.Waiting, Token: e.token}); e.held {
		r.is.State = driver.Held
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
		e.key, e.value, e.token, e.limit = own.key(), string(own.kv.Value), own.token(), own.Limit
	}
	e.on, e.modified, e.seen = clientv3.LeaseID(own.kv.Lease), own.kv.ModRevision, q.revision
	e.held = admits(ahead, e.limit)
	return ahead, true
}
