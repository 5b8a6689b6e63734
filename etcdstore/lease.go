package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

	// countersLast is how long the last token of a name with a floor is kept. Clocks have passed it
	// after driver.MaxLead.
	countersLast = 2 * driver.MaxLead

	leaseBits = 23 // of the number of a lease, of those of one Store; the others are the Store's
)

// A lease is a lease of the server for the entries of this Store with one TTL. It is kept alive
// when one of them is made or renewed, so it prolongs them all: sweep ends those that were not
// renewed themselves. It ends by its time alone. Entries leave one that is given up when they are
// renewed: it is kept alive only as long as the server has no space for a successor. The goroutine
// with Store.turn changes a lease, with Store.mu locked.
type lease struct {
	id      clientv3.LeaseID
	certain time.Time // It lasts until then at least.
	givenUp bool
}

// lasts reports whether a lease certainly lasts until t. The monotonic clock stands still while the
// system is suspended, so the wall clock counts as well. The caller holds Store.mu.
func (l *lease) lasts(t time.Time) bool {
	return !l.certain.Before(t) && !l.certain.Round(0).Before(t.Round(0))
}

// isOurs reports whether a lease is one of this Store: it chooses the numbers of its leases.
func (s *Store) isOurs(id clientv3.LeaseID) bool { return int64(id)>>leaseBits == s.session>>leaseBits }

func leaseSeconds(ttl time.Duration) int64 {
	return int64((ttl + slack + time.Second - 1) / time.Second)
}

// leaseFor returns the lease for a TTL, which lasts for the TTL from now at least. If need be, the
// caller whose turn it is grants the lease or keeps it alive, also for those that wait. The lease
// of an Acquire comes when the base of the tokens is known.
func (s *Store) leaseFor(ctx context.Context, ttl time.Duration, isAcquire bool) (*lease, error) {
	s.sweeper.Do(func() { s.goWhileOpen(s.sweep) })
	end, seconds := time.Now().Add(ttl), leaseSeconds(ttl)
	for try := 0; ; try++ {
		s.mu.Lock()
		l, isBased := s.leases[seconds], s.base != 0 || !isAcquire
		isThere := l != nil && l.lasts(time.Now())
		isNew := !isThere || l.givenUp
		isReady := isBased && !isNew && l.lasts(end)
		s.mu.Unlock()
		if isReady {
			return l, nil
		}
		if try == 0 {
			select {
			case s.turn <- struct{}{}:
				defer func() { <-s.turn }()
				continue
			case <-ctx.Done():
				return nil, driver.NotApplied(ctx.Err())
			}
		}
		err := pause(ctx, try)
		turnCtx, cancel := context.WithTimeout(ctx, requestBound)
		switch {
		case err == nil && !isBased:
			err = s.readBase(turnCtx)
		case err == nil && isNew:
			err = s.grant(turnCtx, seconds)
			if errors.Is(err, rpctypes.ErrNoSpace) && isThere { // What is on the old one stays there.
				if err = s.prolong(turnCtx, l); err == nil {
					cancel()
					return l, nil
				}
			}
		case err == nil:
			err = s.prolong(turnCtx, l)
		}
		cancel()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // The next one is new.
		case errors.Is(err, rpctypes.ErrPermissionDenied) && !isNew: // It may have a key of somebody else.
			s.giveUp(l)
		case err != nil:
			return nil, driver.NotApplied(err)
		}
	}
}

// grant makes a lease. What is certain of it counts from before the sending.
func (s *Store) grant(ctx context.Context, seconds int64) error {
	l := &lease{}
	err := s.send(ctx, true, func(ctx context.Context) error {
		s.grants++
		sent, id := time.Now(), s.session|s.grants%(1<<leaseBits)
		// The method of the client hides that there is no leader.
		resp, err := s.leasing.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: seconds}, grpc.WaitForReady(true))
		l.id, l.certain = clientv3.LeaseID(resp.GetID()), sent.Add(time.Duration(resp.GetTTL())*time.Second)
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[seconds] = l
	return nil
}

// prolong keeps a lease alive. What is certain of it counts from before the sending.
func (s *Store) prolong(ctx context.Context, l *lease) error {
	return s.send(ctx, true, func(ctx context.Context) error {
		sent := time.Now()
		seconds, err := s.keepAlive(ctx, l.id)
		s.mu.Lock()
		defer s.mu.Unlock()
		if end := sent.Add(time.Duration(seconds) * time.Second); err == nil && end.After(l.certain) {
			l.certain = end
		}
		return err
	})
}

// keepAlive returns for how many seconds a lease lasts from now on. The caller has the turn. The
// stream stays open, since a client with a password is authenticated for each.
func (s *Store) keepAlive(ctx context.Context, id clientv3.LeaseID) (int64, error) {
	isNew, streamCtx := s.stream == nil, context.Context(nil)
	if isNew {
		streamCtx, s.endStream = context.WithCancel(clientv3.WithRequireLeader(s.alive))
	}
	defer context.AfterFunc(ctx, s.endStream)()
	var resp *pb.LeaseKeepAliveResponse
	var err error
	if isNew {
		s.stream, err = s.leasing.LeaseKeepAlive(streamCtx, grpc.WaitForReady(true))
	}
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

// readBase reads what is added to create revisions, so that tokens are above those of other stores
// and of a cluster before this one. The first client of a prefix writes it, by its clock.
func (s *Store) readBase(ctx context.Context) error {
	base := s.wall().UnixMicro()
	resp, _, err := s.write(ctx, "", []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.baseKey()), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(s.baseKey(), strconv.FormatInt(base, 10))}, clientv3.OpGet(s.baseKey()))
	if err != nil { // The base is not known, whatever has become of the request.
		return err
	}
	if !resp.Succeeded {
		kv := resp.Responses[0].GetResponseRange().Kvs[0]
		base, err = strconv.ParseInt(string(kv.Value), 10, 64)
		if err != nil || base <= 0 || base > driver.MaxToken {
			return fmt.Errorf("%w: key %q", driver.ErrCorrupt, kv.Key)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = base
	return nil
}

// isBase is the condition that a base is that of the data. It tells them from those of a cluster
// that has lost them, and of a prefix whose keys somebody has deleted.
func (s *Store) isBase(base int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(s.baseKey()), "=", strconv.FormatInt(base, 10))
}

// giveUp has entries use another lease than this one from now on.
func (s *Store) giveUp(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.givenUp = true
}

// sweep ends, once a second, the entries that their owners have not renewed in time.
func (s *Store) sweep() {
	for retry.Sleep(s.alive, time.Second) == nil {
		var due []*entry
		s.mu.Lock()
		for _, e := range s.entries {
			if e.isOver() {
				due = append(due, e)
			}
		}
		s.mu.Unlock()
		var group errgroup.Group
		group.SetLimit(maxOps)
		for _, e := range due {
			group.Go(func() error { s.endOver(e); return nil })
		}
		_ = group.Wait()
	}
}

// endOver ends an entry that its owner has not renewed in time, unless that has renewed it at last.
// One on a lease of another Store has been renewed there. What fails is done the next time.
func (s *Store) endOver(e *entry) {
	ctx, cancel := context.WithTimeout(s.alive, requestBound)
	defer cancel()
	_, revision, err := s.look(ctx, e)
	if err != nil {
		return
	}
	s.mu.Lock()
	snapshot, isNotOurs := *e, revision == 0 || !s.isOurs(e.on)
	isOver := e.isOver() // It may have been renewed meanwhile.
	if isNotOurs && isOver {
		s.forget(e)
	}
	s.mu.Unlock()
	if isOver && !isNotOurs {
		_, _ = s.endEntry(ctx, &snapshot, clientv3.Compare(clientv3.ModRevision(snapshot.key), "=", snapshot.modified))
	}
}

// endEntry deletes the key of an entry under a condition, and forgets the entry. It reports whether
// it has deleted the key.
func (s *Store) endEntry(ctx context.Context, e *entry, condition clientv3.Cmp) (ended bool, err error) {
	resp, _, err := s.write(ctx, e.name, []clientv3.Cmp{condition}, []clientv3.Op{clientv3.OpDelete(e.key)})
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.entries[id(e.name, e.owner)]; known != nil && known.until.Equal(e.until) {
		s.forget(known)
	}
	return resp.Succeeded, nil
}
