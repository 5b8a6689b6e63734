package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// slack is how much longer than a TTL its lease is, so that under load one keep-alive a second
	// serves all entries.
	slack = time.Second

	// grain is slack, and a second by rounding up, and what the server is late: it looks for leases
	// that have expired twice a second, and ends one in a transaction.
	grain = 4 * time.Second

	// answerBound limits how long the answer to a keep-alive may take.
	answerBound = time.Second

	// countersLast is how long the last token of a name with a floor is kept. Clocks have passed it
	// after driver.MaxLead.
	countersLast = 2 * driver.MaxLead
)

// A lease is a lease of the server for all entries of this Store with one TTL. It is kept alive
// when one of them is made or renewed, so it prolongs them all: endUnrenewed ends those that were
// not renewed themselves. Store.mu guards it.
type lease struct {
	seconds int64
	id      clientv3.LeaseID // 0 until it is granted
	base    int64            // as of the grant, so of the same data: without its data, a server does not know the lease
	epoch   int64            // the revision of its epoch key: a transaction of another epoch makes no entry
	certain time.Time        // It lasts until then at least.
	call    *leaseCall       // the request under way, or nil
}

// A leaseCall is a grant or a keep-alive. Many wait for one.
type leaseCall struct {
	done chan struct{} // closed after err is set
	err  error
}

// errLeaseEnded is the error of a keep-alive of a lease that the server does not know.
var errLeaseEnded = driver.NotApplied(errors.New("the lease has ended"))

// lasts reports whether a lease certainly lasts until t. The monotonic clock stands still while the
// system is suspended, so the wall clock counts as well. The caller holds Store.mu.
func (l *lease) lasts(t time.Time) bool {
	return !l.certain.Before(t) && !l.certain.Round(0).Before(t.Round(0))
}

func leaseSeconds(ttl time.Duration) int64 {
	return int64((ttl + slack + time.Second - 1) / time.Second)
}

// leaseFor returns the lease for a TTL, which lasts for the TTL from now at least. It grants one,
// or keeps it alive, if need be: again if that fails because of the network, until ctx ends.
func (s *Store) leaseFor(ctx context.Context, ttl time.Duration) (*lease, error) {
	until := time.Now().Add(ttl)
	var last error
	for try := 0; ; try++ {
		s.mu.Lock()
		l := s.leases[leaseSeconds(ttl)]
		if l == nil || l.id != 0 && !l.lasts(time.Now()) {
			l = &lease{seconds: leaseSeconds(ttl)}
			s.leases[l.seconds] = l
		}
		inUse := l.base != 0
		if s.closed {
			s.mu.Unlock()
			return nil, driver.ErrClosed
		}
		if inUse && l.lasts(until) {
			s.mu.Unlock()
			return l, nil
		}
		call := l.call
		if call == nil {
			call = &leaseCall{done: make(chan struct{})}
			l.call = call
			bound := requestBound
			if deadline, ok := ctx.Deadline(); ok {
				bound = min(bound, time.Until(deadline)/2) // so that its error is there in time
			}
			s.group.Go(func() { s.prolong(l, call, bound) })
		}
		s.mu.Unlock()
		select {
		case <-call.done:
		case <-ctx.Done():
			return nil, s.storeError(cmp.Or(last, ctx.Err()))
		}
		switch {
		case call.err == nil, errors.Is(call.err, errLeaseEnded):
			last = nil
		case errors.Is(call.err, rpctypes.ErrPermissionDenied) && inUse:
			s.replace(l) // It may have a key of somebody else, which no new lease has.
		case !mayPass(call.err), isTurnedAway(call.err) && try > 2*len(s.client.Endpoints()), retry.Sleep(ctx, retry.Backoff(try, 10*time.Millisecond, time.Second)) != nil:
			return nil, s.storeError(call.err)
		default:
			last = call.err
		}
	}
}

// prolong grants a lease, or keeps it alive. What is certain counts from before the sending.
func (s *Store) prolong(l *lease, call *leaseCall, bound time.Duration) {
	ctx, cancel := context.WithTimeout(s.alive, bound)
	defer cancel()
	sent, seconds, err := time.Now(), int64(0), error(nil)
	id, base := l.id, l.base // which only this goroutine changes
	if id == 0 {
		var resp *pb.LeaseGrantResponse
		leases := pb.NewLeaseClient(s.client.ActiveConnection()) // The method of the client hides that there is no leader.
		if resp, err = leases.LeaseGrant(clientv3.WithRequireLeader(ctx), &pb.LeaseGrantRequest{TTL: l.seconds}); err == nil {
			id, seconds = clientv3.LeaseID(resp.ID), resp.TTL
		}
		err = rpctypes.Error(err)
	} else if seconds, err = s.stream.keepAlive(s, id); err == nil && seconds <= 0 {
		err = errLeaseEnded
		s.noteLeaseEnded()
	}
	if err == nil && base == 0 {
		base, err = s.readBase(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.base == 0 { // Neither ever changes.
		l.id, l.base = id, base
	}
	if end := sent.Add(time.Duration(seconds) * time.Second); end.After(l.certain) {
		l.certain = end
	}
	call.err, l.call = err, nil
	close(call.done)
}

// readBase returns what is added to create revisions, so that tokens are above those of other
// stores and of a cluster before this one. The first client of a prefix writes it, by its clock.
func (s *Store) readBase(ctx context.Context) (int64, error) {
	now := s.wall().UnixMicro()
	resp, err := s.do(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.baseKey()), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(s.baseKey(), strconv.FormatInt(now, 10))}, []clientv3.Op{clientv3.OpGet(s.baseKey())})
	switch {
	case err != nil: // The base is not known, whatever has become of the request.
		return 0, err
	case resp.Succeeded:
		return now, nil
	}
	kv := resp.Responses[0].GetResponseRange().Kvs[0]
	base, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil || base <= 0 || base > driver.MaxToken {
		return 0, fmt.Errorf("%w: key %q", driver.ErrCorrupt, kv.Key)
	}
	return base, nil
}

// uses reports whether a lease has keys that are wanted. The caller holds s.mu.
func (s *Store) uses(l *lease) bool {
	for _, e := range s.entries {
		if e.lease == l {
			return true
		}
	}
	return l.seconds == leaseSeconds(countersLast)
}

// replace has new entries use another lease than this one, and ends it if nothing uses it.
func (s *Store) replace(l *lease) {
	s.mu.Lock()
	if s.leases[l.seconds] == l {
		delete(s.leases, l.seconds)
	}
	used := s.uses(l)
	s.mu.Unlock()
	if !used {
		s.goWhileOpen(func() { s.revoke(l.id) })
	}
}

// revoke ends a lease, or lets its time end it.
func (s *Store) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(s.alive, requestBound)
	defer cancel()
	_, _ = s.client.Revoke(ctx, id)
}

// noteLeaseEnded has no lease used any more: a server that does not know one may have lost others.
func (s *Store) noteLeaseEnded() {
	s.mu.Lock()
	clear(s.leases)
	s.mu.Unlock()
	s.notices.Send("", "", 0)
}

// A keepAliveStream keeps leases alive, one after the other. A stream stays open, since a client
// with a password is authenticated for each.
type keepAliveStream struct {
	mu     sync.Mutex
	stream pb.Lease_LeaseKeepAliveClient // nil if none is open
	end    context.CancelFunc
}

// keepAlive returns how long a lease lasts from now, 0 if it has ended. After an error the next
// stream is one of another member.
func (k *keepAliveStream) keepAlive(s *Store, id clientv3.LeaseID) (seconds int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		isNew := k.stream == nil
		var ctx context.Context
		if isNew {
			ctx, k.end = context.WithCancel(clientv3.WithRequireLeader(s.alive))
		}
		silence := time.AfterFunc(answerBound, k.end)
		if isNew {
			k.stream, err = s.remote.LeaseKeepAlive(ctx)
		}
		var resp *pb.LeaseKeepAliveResponse
		if err == nil {
			_ = k.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv returns the reason.
			resp, err = k.stream.Recv()
		}
		isSilent := !silence.Stop()
		if err == nil && resp.ID == int64(id) {
			return resp.TTL, nil
		}
		k.end()
		k.stream = nil
		switch {
		case err == nil:
			return 0, errors.New("etcd replies for another lease")
		case isSilent:
			return 0, fmt.Errorf("no answer to a keep-alive within %v: %w", answerBound, context.DeadlineExceeded)
		case isNew:
			return 0, rpctypes.Error(err)
		}
		err = nil // The stream may have ended long ago.
	}
}

// endUnrenewed ends, once a second, the entries that their owners have not renewed in time.
func (s *Store) endUnrenewed() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.alive.Done():
			return
		case <-tick.C:
		}
		var due []entry
		s.mu.Lock()
		for _, e := range s.entries {
			if e.until.Before(time.Now()) {
				due = append(due, *e)
			}
		}
		s.mu.Unlock()
		for _, e := range due {
			ctx, cancel := context.WithTimeout(s.alive, requestBound)
			// With another lease, the owner has renewed it through another Store.
			_, err := s.endEntry(ctx, &e, e.is(), clientv3.Compare(clientv3.LeaseValue(e.key), "=", int64(e.lease.id)))
			if err == nil && e.moving != nil {
				_, err = s.endEntry(ctx, &e, e.is(), clientv3.Compare(clientv3.LeaseValue(e.key), "=", int64(e.moving.id)))
			}
			cancel()
			if err != nil {
				break // It is done the next time.
			}
		}
	}
}

// endEntry deletes the key of an entry under conditions, and forgets the entry. It reports whether
// it has deleted the key. If the Acquire is unanswered, it may be under way still, and a new epoch
// of the lease has it fail then.
func (s *Store) endEntry(ctx context.Context, e *entry, conditions ...clientv3.Cmp) (ended bool, err error) {
	then, otherwise := []clientv3.Op{clientv3.OpDelete(e.key)}, []clientv3.Op(nil)
	isUnanswered := e.lease != nil && e.token == 0
	if isUnanswered {
		otherwise = []clientv3.Op{clientv3.OpPut(s.epochKey(e.lease), "", clientv3.WithLease(e.lease.id))}
		then = append(then, otherwise...)
	}
	resp, revision, err := s.write(ctx, e.name, conditions, then, otherwise)
	if isUnanswered && (errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrNoSpace)) { // and so nothing arrives
		resp, revision, err = s.write(ctx, e.name, conditions, then[:1], nil)
	}
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if isUnanswered {
		e.lease.epoch = max(e.lease.epoch, revision)
	}
	if known := s.entries[id(e.name, e.owner)]; known != nil && known.until.Equal(e.until) {
		s.forget(known)
	}
	return resp.Succeeded, nil
}
