package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// leaseFor returns the lease of so many seconds, which lasts until end at least. If need be, one
// caller at a time requests it or keeps it alive, for all that need it.
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
			turn, _ := s.turns.LoadOrStore(seconds, make(chan struct{}, 1))
			select {
			case turn.(chan struct{}) <- struct{}{}:
				defer func() { <-turn.(chan struct{}) }()
				continue
			case <-ctx.Done():
				return nil, driver.NotApplied(ctx.Err())
			}
		}
		isNew := l.id == 0
		if err := s.prolong(ctx, l); err != nil {
			return nil, err
		}
		if isNew { // One that was dropped meanwhile stays so: it may have entries that nobody wants.
			s.mu.Lock()
			s.leases[l.id] = l
			s.mu.Unlock()
		}
	}
}

// prolong requests a lease, or keeps it alive. One that cannot be kept alive is given up. What is
// certain counts from before the first try: a later one may find what that has done.
func (s *Store) prolong(ctx context.Context, l *lease) error {
	sent, left, isNew := time.Now(), int64(0), l.id == 0
	if isNew {
		l.id = 1 + rand.N(clientv3.LeaseID(math.MaxInt64))
	}
	err := s.send(ctx, true, func(ctx context.Context) (err error) {
		if !isNew {
			left, err = s.keepAlive(ctx, l.id)
			return err
		}
		req := &pb.LeaseGrantRequest{ID: int64(l.id), TTL: l.seconds} // The client's Grant hides that there is no leader.
		resp, err := s.leasing.LeaseGrant(ctx, req, grpc.WaitForReady(true))
		if left = resp.GetTTL(); errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) {
			left, err = l.seconds, nil
		}
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && left > 0 {
		l.certain = sent.Add(time.Duration(left) * time.Second)
	} else if !isNew && (err == nil || isUnusable(err)) {
		l.seconds, err = 0, nil
	}
	return err
}

// A stream carries one keep-alive at a time.
type stream struct {
	pb.Lease_LeaseKeepAliveClient
	end context.CancelFunc
}

// keepAlive returns for how many seconds a lease lasts from now on, 0 if it is over. One stream
// stays open, since a client with a password is authenticated for each.
func (s *Store) keepAlive(ctx context.Context, id clientv3.LeaseID) (left int64, err error) {
	var alive stream
	var newCtx context.Context
	select {
	case alive = <-s.idle:
	default:
		newCtx, alive.end = context.WithCancel(clientv3.WithRequireLeader(s.alive))
	}
	defer context.AfterFunc(ctx, alive.end)()
	if newCtx != nil {
		alive.Lease_LeaseKeepAliveClient, err = s.leasing.LeaseKeepAlive(newCtx, grpc.WaitForReady(true))
	}
	var resp *pb.LeaseKeepAliveResponse
	if err == nil {
		_ = alive.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv returns the reason.
		resp, err = alive.Recv()
	}
	switch {
	case err == nil:
		select {
		case s.idle <- alive:
			return resp.TTL, nil
		default:
		}
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer to a keep-alive: %w", context.DeadlineExceeded)
	case newCtx == nil: // It may have ended long ago. No text of a refusal: a new one may do.
		err = status.Error(codes.Unavailable, "the stream of keep-alives: "+status.Convert(err).Message())
	}
	alive.end()
	return resp.GetTTL(), err
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

// sweep ends the entries that their owners have not renewed in time. A second passes between two
// sweeps.
func (s *Store) sweep() {
	for retry.Sleep(s.alive, time.Second) == nil {
		var group sync.WaitGroup
		ctx, cancel := context.WithTimeout(s.alive, longest)
		s.mu.Lock()
		for _, e := range s.entries {
			if e.isOver() {
				group.Go(func() { _, _ = s.endEntry(ctx, e, 0, true) })
			}
		}
		s.mu.Unlock()
		group.Wait()
		cancel()
	}
}
