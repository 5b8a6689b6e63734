package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/driver"
)

// errAnotherCluster is the error of a reply of a cluster that is not that of the Store.
var errAnotherCluster = errors.New("an address is of another etcd cluster")

// checkReply returns an error if a reply is of another cluster, whose ID its header has. What was
// requested has had no effect on that of the Store, which is the cluster of the first reply.
func (s *Store) checkReply(cluster uint64) error {
	if cluster == 0 || s.cluster.CompareAndSwap(0, cluster) || s.cluster.Load() == cluster {
		return nil
	}
	return fmt.Errorf("%w: %x, not %x", errAnotherCluster, cluster, s.cluster.Load())
}

// findCluster returns an error if the addresses of the client are of two clusters. It reads the
// status of all of them before the first request, since each cluster would grant a name. Servers
// that were started with the same options, such as none, have the same IDs: see isOneServer. An
// address that gives no answer for s.lateStatus after the first one, or for half of the time of
// ctx, is left out.
func (s *Store) findCluster(ctx context.Context) error {
	addrs := s.client.Endpoints()
	if s.cluster.Load() != 0 || len(addrs) == 1 {
		return nil
	}
	select {
	case s.finding <- struct{}{}:
		defer func() { <-s.finding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.cluster.Load() != 0 {
		return nil
	}
	type answer struct {
		addr    string
		cluster uint64 // 0 if there is no answer
		member  uint64
	}
	answers := make(chan answer, len(addrs))
	statusCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, addr := range addrs {
		if !s.goWhileOpen(func() {
			a := answer{addr: addr}
			if state, err := s.client.Status(statusCtx, addr); err == nil && state.Header != nil {
				a.cluster, a.member = state.Header.ClusterId, state.Header.MemberId
			}
			answers <- a
		}) {
			return driver.ErrClosed
		}
	}
	patience := s.lateStatus
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	var first answer
	addrOf := map[uint64]string{} // the first address of each member
	var late <-chan time.Time
	for range addrs {
		select {
		case a := <-answers:
			switch {
			case a.cluster == 0:
				continue
			case first.cluster == 0:
				first, late = a, time.After(patience)
			case a.cluster != first.cluster:
				return fmt.Errorf("%w: the addresses are of two etcd clusters: %s of %x, %s of %x", driver.ErrInvalid, first.addr, first.cluster, a.addr, a.cluster)
			}
			if addrOf[a.member] == "" {
				addrOf[a.member] = a.addr
				continue
			}
			one, err := s.isOneServer(ctx, addrOf[a.member], a.addr)
			if err != nil {
				return err
			}
			if !one {
				return fmt.Errorf("%w: the addresses %s and %s are of two etcd clusters with the same ID: start each with an --initial-cluster-token of its own", driver.ErrInvalid, addrOf[a.member], a.addr)
			}
			continue
		case <-late:
		}
		break
	}
	if first.cluster == 0 { // A member that serves locks may refuse its status.
		return ctx.Err()
	}
	s.cluster.Store(first.cluster)
	return nil
}

// isOneServer reports whether two addresses of one member ID lead to the same cluster: a lease that
// is granted at the one is known at the other.
func (s *Store) isOneServer(ctx context.Context, a, b string) (bool, error) {
	var leases [2]pb.LeaseClient
	for i, addr := range []string{a, b} {
		conn, err := s.client.Dial(addr)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		leases[i] = pb.NewLeaseClient(conn)
	}
	granted, err := leases[0].LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 10})
	if err != nil {
		return false, err
	}
	found, err := leases[1].LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: granted.ID})
	_, _ = leases[0].LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: granted.ID}) // Else it ends by itself.
	return err == nil && found.TTL > 0, err
}
