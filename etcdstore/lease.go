package etcdstore

import (
	"context"
	"errors"
	"hash/fnv"
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

	// keepAliveBound limits the use of the stream, which others wait for.
	keepAliveBound = time.Second
)

// A lease is a lease of the server. It lasts until certain at least. Store.mu guards it.
type lease struct {
	id      clientv3.LeaseID
	seconds int64 // 0 if it is not known
	certain time.Time
}

// endsBefore reports whether the lease may end before t. The monotonic clock stands still while the
// system is suspended, so the wall clock counts as well. The caller holds Store.mu.
func (l *lease) endsBefore(t time.Time) bool {
	return l.certain.Before(t) || l.certain.Round(0).Before(t.Round(0))
}

// takeLease returns a lease that lasts until ttl after began at least.
func (s *Store) takeLease(ctx context.Context, began time.Time, ttl time.Duration) (l *lease, err error) {
	seconds := int64((ttl + slack + time.Second - 1) / time.Second)
	s.mu.Lock()
	if idle := s.idle[seconds]; len(idle) > 0 {
		l = idle[len(idle)-1]
		s.idle[seconds] = idle[:len(idle)-1]
		if !l.certain.After(began) { // It has ended, and so have those before it.
			l = nil
			delete(s.idle, seconds)
		}
	}
	isShort := l != nil && l.endsBefore(began.Add(ttl))
	s.mu.Unlock()
	if isShort {
		err = s.keepAlive(ctx, []*lease{l})
	}
	if err == nil && (l == nil || isShort && !s.lastsUntil(l, began.Add(ttl))) {
		var resp *clientv3.LeaseGrantResponse
		sent := time.Now()
		if resp, err = s.client.Grant(ctx, seconds); err == nil {
			l = &lease{id: resp.ID, seconds: seconds, certain: sent.Add(time.Duration(resp.TTL) * time.Second)}
		}
	}
	if err != nil {
		return nil, driver.NotApplied(s.storeError(err)) // A lease that has no keys ends by itself.
	}
	return l, nil
}

func (s *Store) lastsUntil(l *lease, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !l.endsBefore(t)
}

// putLease takes back a lease without keys, which may be nil.
func (s *Store) putLease(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	id = clientv3.LeaseID(hash.Sum64()>>17)<<16 | clientv3.LeaseID(today&0xffff)
	left, err := s.client.TimeToLive(ctx, id)
	if err == nil && left.TTL < int64(dayTTL/time.Second)/2 {
		grant := &pb.LeaseGrantRequest{ID: int64(id), TTL: int64(dayTTL / time.Second)}
		if left.TTL > 0 {
			grant.ID = 0 // The other is of a client whose clock is far off.
		}
		var resp *pb.LeaseGrantResponse
		if resp, err = s.leases.LeaseGrant(ctx, grant); err == nil {
			id = clientv3.LeaseID(resp.ID)
		} else if rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseExist) {
			err = nil // Another client was faster.
		}
	}
	if err != nil {
		return 0, driver.NotApplied(s.storeError(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters, s.countersDay = id, today
	return id, nil
}

// A keepAliveStream keeps leases alive. The server replies in the order of the requests. The zero
// value is none. A user with a password is authenticated for each stream, so the Store has one.
type keepAliveStream struct {
	pb.Lease_LeaseKeepAliveClient
	end context.CancelFunc
}

// keepAlive keeps leases alive, and returns when the server has replied for all of them. A lease
// that has ended is certain until the zero time. What is certain counts from before the sending.
func (s *Store) keepAlive(ctx context.Context, leases []*lease) (err error) {
	if len(leases) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepAliveBound)
	defer cancel()
	var stream keepAliveStream
	select {
	case stream = <-s.stream:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.stream <- stream }()
	for {
		isNew := stream.end == nil
		if isNew {
			var alive context.Context // A member without a leader ends the stream.
			alive, stream.end = context.WithCancel(clientv3.WithRequireLeader(s.alive))
			stop := context.AfterFunc(ctx, stream.end)
			stream.Lease_LeaseKeepAliveClient, err = s.leases.LeaseKeepAlive(alive)
			stop()
		}
		if err == nil {
			stop := context.AfterFunc(ctx, stream.end) // Send may wait for the connection.
			if err = s.exchange(stream, leases); !stop() && err == nil {
				err = ctx.Err()
			}
		}
		if err == nil {
			return nil
		}
		stream.end()
		stream = keepAliveStream{}
		if isNew || ctx.Err() != nil {
			return s.storeError(err)
		}
		err = nil // The stream may have ended long ago.
	}
}

// exchange sends a request for each lease, and then reads the replies.
func (s *Store) exchange(stream keepAliveStream, leases []*lease) error {
	sent := time.Now()
	for _, l := range leases {
		if stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)}) != nil {
			break // Recv returns the reason.
		}
	}
	for _, l := range leases {
		resp, err := stream.Recv()
		if err == nil && resp.ID != int64(l.id) {
			err = errors.New("etcd replies for another lease")
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if end := sent.Add(time.Duration(resp.TTL) * time.Second); resp.TTL <= 0 {
			l.certain = time.Time{}
		} else if l.seconds = resp.TTL; end.After(l.certain) {
			l.certain = end
		}
		s.mu.Unlock()
	}
	return nil
}
