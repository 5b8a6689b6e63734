package etcdstore

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// slack is how much longer than a TTL its lease is, so that one can be used several times before
	// it has to be kept alive.
	slack = time.Second

	// grain is slack, and a second by rounding up, and what the server is late: it looks for leases
	// that have expired twice a second, and ends one in a transaction.
	grain = 4 * time.Second

	// maxIdle bounds the TTL of a lease without keys, which is revoked beyond.
	maxIdle = 5 * time.Minute

	// dayTTL is the TTL of the lease of the counters of a day. Those of a floor have to last until
	// clocks have passed it.
	dayTTL = driver.MaxLead + 48*time.Hour
)

// A lease is a lease of the server. It lasts until certain at least.
type lease struct {
	id      clientv3.LeaseID
	seconds int64 // 0 if it is not known
	certain time.Time
}

func leaseSeconds(ttl time.Duration) int64 {
	return int64((ttl + slack + time.Second - 1) / time.Second)
}

// takeLeases returns a lease for each TTL, which lasts until that long after began at least. It is
// nil for the TTL 0.
func (s *Store) takeLeases(ctx context.Context, began time.Time, ttls ...time.Duration) ([]*lease, error) {
	leases, stale := make([]*lease, len(ttls)), []*lease{}
	s.mu.Lock()
	for i, ttl := range ttls {
		seconds := leaseSeconds(ttl)
		if idle := s.idle[seconds]; ttl > 0 && len(idle) > 0 {
			leases[i] = idle[len(idle)-1]
			s.idle[seconds] = idle[:len(idle)-1]
			switch {
			case !leases[i].certain.After(began): // It has ended, and so have those before it.
				leases[i] = nil
				delete(s.idle, seconds)
			case leases[i].endsBefore(began.Add(ttl)):
				stale = append(stale, leases[i])
			}
		}
	}
	s.mu.Unlock()
	if err := s.keepAlive(ctx, stale); err != nil {
		return nil, driver.NotApplied(err)
	}
	for i, ttl := range ttls {
		if ttl == 0 || leases[i] != nil && !s.endsBefore(leases[i], began.Add(ttl)) {
			continue
		}
		sent, seconds := time.Now(), leaseSeconds(ttl)
		resp, err := s.client.Grant(ctx, seconds)
		if err != nil {
			s.putLeases(leases...)
			return nil, driver.NotApplied(storeError(err)) // A lease that has no keys ends by itself.
		}
		leases[i] = &lease{id: resp.ID, seconds: seconds, certain: sent.Add(time.Duration(resp.TTL) * time.Second)}
	}
	return leases, nil
}

// putLeases takes back leases without keys. Those that are nil are ignored.
func (s *Store) putLeases(leases ...*lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range leases {
		if l != nil && l.seconds > 0 && l.seconds <= int64(maxIdle/time.Second) {
			s.idle[l.seconds] = append(s.idle[l.seconds], l)
		} else if l != nil && !s.closed {
			s.group.Go(func() {
				ctx, cancel := context.WithTimeout(s.alive, requestBound)
				defer cancel()
				_, _ = s.client.Revoke(ctx, l.id) // else its time ends it
			})
		}
	}
}

// endsBefore reports whether the lease may end before t. The monotonic clock stands still while the
// system is suspended, so the wall clock counts as well. The caller holds Store.mu.
func (l *lease) endsBefore(t time.Time) bool {
	return l.certain.Before(t) || l.certain.Round(0).Before(t.Round(0))
}

func (s *Store) endsBefore(l *lease, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.endsBefore(t)
}

// dayLease returns the lease of the counters of this day. All clients choose the same one, so that
// counters end together and cost no lease each.
func (s *Store) dayLease(ctx context.Context) (clientv3.LeaseID, error) {
	today := s.wall().Unix() / (24 * 60 * 60)
	s.mu.Lock()
	id, day := s.counters, s.countersDay
	s.mu.Unlock()
	if id != 0 && day == today {
		return id, nil
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(s.prefix)) // never fails
	grant := &pb.LeaseGrantRequest{ID: int64(hash.Sum64()>>17)<<16 | today&0xffff, TTL: int64(dayTTL / time.Second)}
	resp, err := s.leases.LeaseGrant(ctx, grant)
	if err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseExist) {
		var left *clientv3.LeaseTimeToLiveResponse
		if left, err = s.client.TimeToLive(ctx, clientv3.LeaseID(grant.ID)); err == nil && left.TTL < grant.TTL/2 {
			grant.ID = 0 // somebody else's
			resp, err = s.leases.LeaseGrant(ctx, grant)
		}
	}
	if err != nil {
		return 0, driver.NotApplied(storeError(err))
	}
	if resp != nil {
		grant.ID = resp.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters, s.countersDay = clientv3.LeaseID(grant.ID), today
	return s.counters, nil
}

// A keepAliveStream keeps leases alive. The server replies in the order of the requests.
type keepAliveStream struct {
	pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc

	mu      sync.Mutex
	pending []keepAliveCall
	err     error // why it has ended
}

type keepAliveCall struct {
	lease *lease
	sent  time.Time
	done  chan<- error
}

// keepAlive keeps leases alive, and returns when the server has replied for all of them. A lease
// that has ended is certain until the zero time. What is certain counts from the sending.
func (s *Store) keepAlive(ctx context.Context, leases []*lease) (err error) {
	if len(leases) == 0 {
		return nil
	}
	var stream *keepAliveStream
	select {
	case stream = <-s.stream:
	case <-ctx.Done():
		return ctx.Err()
	}
	if stream == nil || stream.hangs() {
		if stream, err = s.openStream(ctx); err != nil {
			s.stream <- nil
			return storeError(err)
		}
	}
	done := make(chan error, len(leases))
	stop := context.AfterFunc(ctx, stream.cancel) // Send may wait for the connection
	for _, l := range leases {
		stream.mu.Lock()
		if err = stream.err; err == nil {
			stream.pending = append(stream.pending, keepAliveCall{l, time.Now(), done})
		}
		stream.mu.Unlock()
		if err == nil {
			err = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)})
		}
		if err != nil {
			stream.cancel()
			break
		}
	}
	stop()
	s.stream <- stream
	for range leases {
		if err != nil {
			break
		}
		select {
		case err = <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return storeError(err)
}

// hangs reports whether the stream has ended, or has had no reply for too long: then it ends it.
func (k *keepAliveStream) hangs() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil && (len(k.pending) == 0 || time.Since(k.pending[0].sent) < requestBound) {
		return false
	}
	k.cancel()
	return true
}

// openStream opens the stream of the Store. A member without a leader ends it.
func (s *Store) openStream(ctx context.Context) (*keepAliveStream, error) {
	alive, cancel := context.WithCancel(clientv3.WithRequireLeader(s.alive))
	stop := context.AfterFunc(ctx, cancel)
	client, err := s.leases.LeaseKeepAlive(alive)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	stream := &keepAliveStream{Lease_LeaseKeepAliveClient: client, cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		cancel()
		return nil, driver.ErrClosed
	}
	s.group.Go(func() { s.receive(stream) })
	return stream, nil
}

// receive passes the replies on until the stream ends.
func (s *Store) receive(stream *keepAliveStream) {
	defer stream.cancel()
	for {
		resp, err := stream.Recv()
		stream.mu.Lock()
		if err == nil && (len(stream.pending) == 0 || resp.ID != int64(stream.pending[0].lease.id)) {
			err = errors.New("etcd replies for another lease")
		}
		if err != nil {
			stream.err = err
			for _, call := range stream.pending {
				call.done <- err
			}
			stream.mu.Unlock()
			return
		}
		call := stream.pending[0]
		stream.pending = stream.pending[1:]
		stream.mu.Unlock()
		s.mu.Lock()
		if resp.TTL <= 0 {
			call.lease.certain = time.Time{}
		} else {
			call.lease.seconds = resp.TTL
			if end := call.sent.Add(time.Duration(resp.TTL) * time.Second); end.After(call.lease.certain) {
				call.lease.certain = end
			}
		}
		s.mu.Unlock()
		call.done <- nil
	}
}
