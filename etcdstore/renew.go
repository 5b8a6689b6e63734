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

// A renewal is one request of a Renew.
type renewal struct {
	driver.RenewRequest
	*entry
	end    time.Time // until which the entry is to last
	answer driver.Entry
	err    error
}

// Renew implements [driver.Store]. One keep-alive, and one read after it, serve many entries.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) (entries []driver.Entry, err error) {
	began := time.Now()
	bySeconds := map[int64][]*renewal{} // of the leases that they need
	renewals := make([]renewal, len(reqs))
	s.mu.Lock()
	for i, req := range reqs {
		id, end := [2]string{req.Name, req.Owner}, began.Add(req.TTL)
		e := cmp.Or(s.entries[id], &entry{name: req.Name, owner: req.Owner}) // It may be from another Store.
		s.entries[id] = e
		renewals[i] = renewal{RenewRequest: req, entry: e}
		if e.record != nil && req.Token != 0 && req.Token != e.record.token() {
			renewals[i].answer.State = driver.Lost
			continue
		}
		if e.until.Before(end) { // No renewal shortens it.
			e.until = end
		}
		seconds := leaseSeconds(e.until.Sub(began))
		if e.isKnown() {
			if l := s.leases[e.record.lease]; l != nil && l.seconds > 0 && l.lasts(e.until) {
				seconds = l.seconds
			}
		}
		renewals[i].end = e.until
		bySeconds[seconds] = append(bySeconds[seconds], &renewals[i])
	}
	s.mu.Unlock()
	var group sync.WaitGroup
	for seconds, all := range bySeconds {
		for some := range slices.Chunk(all, maxOps) {
			group.Go(func() { s.renewTogether(ctx, seconds, some) })
		}
	}
	group.Wait()
	for _, r := range renewals {
		if err = cmp.Or(err, r.err); r.err != nil {
			r.answer = driver.Entry{}
		}
		entries = append(entries, r.answer)
	}
	return entries, err
}

// renewTogether reads what entries are by now. It puts those on a lease of so many seconds that
// have another one: that of a place, of another TTL, or of another Store.
func (s *Store) renewTogether(ctx context.Context, seconds int64, renewals []*renewal) {
	var group sync.WaitGroup
	defer group.Wait()
	var entries []*entry
	for _, r := range renewals {
		entries = append(entries, r.entry)
	}
	var queues []queue
	last := slices.MaxFunc(renewals, func(a, b *renewal) int { return a.end.Compare(b.end) })
	l, err := s.leaseFor(ctx, seconds, last.end)
	if err == nil {
		queues, err = s.look(ctx, entries...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range renewals {
		if r.err = err; err != nil {
			if len(renewals) > 1 && isRefusal(err) { // perhaps because of another one
				group.Go(func() { s.renewTogether(ctx, seconds, renewals[i:i+1]) })
			}
			continue
		}
		q, own := queues[i], queues[i].own
		switch {
		case own == nil || own.Kept:
			s.forget(r.entry)
			fallthrough
		case r.Token != 0 && r.Token != own.token():
			r.answer.State = driver.Lost
			continue
		case q.waiting() == 0:
			r.answer.State = driver.Held
		default:
			r.answer.State = driver.Waiting
		}
		s.watch(r.entry, q)
		if r.answer.Token = own.token(); !r.isKnown() || own.lease != l.id {
			isOurs := s.leases[own.lease] != nil
			group.Go(func() { r.err = s.move(ctx, r, own, l, isOurs) })
		}
	}
}

// move puts an entry on a lease, which lasts as long as that of another Store that it leaves.
func (s *Store) move(ctx context.Context, r *renewal, own *record, l *lease, isOurs bool) error {
	if !isOurs {
		left, err := s.lookAtLease(ctx, own.lease)
		if end := time.Now().Add(left); err == nil && r.end.Before(end) {
			r.end = end
			l, err = s.leaseFor(ctx, leaseSeconds(left), end)
		}
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	r.moving = max(r.moving, own.modified)
	if r.until.Before(r.end) { // before the sweep finds the entry on a lease of this Store
		r.until = r.end
	}
	s.mu.Unlock()
	put := clientv3.OpPut(own.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(l.id))
	resp, err := s.write(ctx, r.Name, own.isUnchanged(), []clientv3.Op{put})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case isUnusable(err):
		l.seconds = 0
	case err == nil && !resp.Succeeded: // It is renewed again.
		return driver.NotApplied(errors.New("the entry has changed meanwhile"))
	case err == nil:
		moved := *own
		moved.lease, moved.modified = l.id, resp.Header.Revision
		r.record = &moved
	}
	return err
}
