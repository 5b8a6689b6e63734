package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	slack = time.Second     // A lease is longer by it, so that one keep-alive a second serves all entries.
	grain = 4 * time.Second // slack, a second by rounding up, and what the server is late
)

// A lease is a lease of the server for the entries of this Store with one TTL. It is kept alive
// when one of them is made or renewed, which prolongs them all: sweep ends those that were not
// renewed themselves. Store.mu guards it, but for the id, which does not change.
type lease struct {
	id      clientv3.LeaseID
	seconds int64     // 0 for one that is given up: entries leave it when they are renewed
	certain time.Time // It lasts until then at least.
}

// lasts reports whether a lease certainly lasts until t. The monotonic clock stands still while the
// system is suspended, so the wall clock counts as well.
func (l *lease) lasts(t time.Time) bool {
	return !l.certain.Before(t) && !l.certain.Round(0).Before(t.Round(0))
}

func leaseSeconds(ttl time.Duration) int64 {
	return int64((ttl + slack + time.Second - 1) / time.Second)
}

// isUnusable reports whether a lease is over, or has a key of somebody else, by the error of a
// request.
func isUnusable(err error) bool {
	return errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

// leaseFor returns the lease of so many seconds, which lasts until end at least. If need be, the
// caller that has the turn requests a new one or keeps it alive, for those that wait, too.
func (s *Store) leaseFor(ctx context.Context, seconds int64, end time.Time) (*lease, error) {
	for hasTurn := false; ; hasTurn = true {
		now, l := time.Now(), &lease{seconds: seconds} // to be granted
		end = now.Add(end.Sub(now))                    // The wall clock may have been set meanwhile.
		s.mu.Lock()
		for id, other := range s.leases {
			if !other.lasts(now) {
				delete(s.leases, id)
			} else if other.seconds == seconds {
				l = other
			}
		}
		isReady := l.lasts(end)
		s.mu.Unlock()
		if isReady {
			return l, nil
		}
		if !hasTurn {
			select {
			case s.turn <- struct{}{}:
				defer func() { <-s.turn }()
				continue
			case <-ctx.Done():
				return nil, driver.NotApplied(ctx.Err())
			}
		}
		if err := s.prolong(ctx, l); err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.leases[l.id] = l
		s.mu.Unlock()
	}
}

// prolong requests a lease, or keeps it alive, for which the caller has the turn. One that cannot
// be kept alive is given up. What is certain counts from before the request.
func (s *Store) prolong(ctx context.Context, l *lease) error {
	var certain time.Time
	err := s.send(ctx, true, func(ctx context.Context) (err error) {
		sent, left := time.Now(), int64(0)
		if l.id != 0 {
			left, err = s.keepAlive(ctx, l.id)
		} else {
			var resp *pb.LeaseGrantResponse // The client's Grant hides that there is no leader.
			resp, err = s.leasing.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: l.seconds}, grpc.WaitForReady(true))
			l.id, left = clientv3.LeaseID(resp.GetID()), resp.GetTTL()
		}
		certain = sent.Add(time.Duration(left) * time.Second)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		l.certain = certain
	} else if l.id != 0 && isUnusable(err) {
		l.seconds, err = 0, nil
	}
	return err
}

// keepAlive returns for how many seconds a lease lasts from now on. The caller has the turn. The
// stream stays open, since a client with a password is authenticated for each.
func (s *Store) keepAlive(ctx context.Context, id clientv3.LeaseID) (left int64, err error) {
	isNew, streamCtx := s.stream == nil, context.Context(nil)
	if isNew {
		streamCtx, s.endStream = context.WithCancel(clientv3.WithRequireLeader(s.alive))
	}
	defer context.AfterFunc(ctx, s.endStream)()
	if isNew {
		s.stream, err = s.leasing.LeaseKeepAlive(streamCtx, grpc.WaitForReady(true))
	}
	var resp *pb.LeaseKeepAliveResponse
	if err == nil {
		_ = s.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv returns the reason.
		resp, err = s.stream.Recv()
	}
	switch {
	case err == nil && resp.TTL > 0:
		return resp.TTL, nil
	case err == nil:
		return 0, rpctypes.ErrLeaseNotFound
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer to a keep-alive: %w", context.DeadlineExceeded)
	case !isNew: // It may have ended long ago: a new one may do.
		err = status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	s.endStream()
	s.stream = nil
	return 0, err
}

// lookAtLease returns how long a lease lasts, in whole seconds, as its leader knows it.
func (s *Store) lookAtLease(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	var resp *pb.LeaseTimeToLiveResponse
	err := s.send(ctx, true, func(ctx context.Context) (err error) {
		resp, err = s.leasing.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: int64(id)}, grpc.WaitForReady(true))
		return err
	})
	return time.Duration(min(resp.GetTTL(), int64(100*driver.MaxTTL/time.Second))) * time.Second, err
}

// sweep ends, once a second, the entries that their owners have not renewed in time.
func (s *Store) sweep() {
	for retry.Sleep(s.alive, time.Second) == nil {
		var group sync.WaitGroup
		s.mu.Lock()
		for _, e := range s.entries {
			if e.isOver() {
				group.Go(func() { _, _ = s.endEntry(s.alive, e, 0, true) })
			}
		}
		s.mu.Unlock()
		group.Wait()
	}
}
