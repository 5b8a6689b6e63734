package etcdstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// slack is how much longer than a TTL its lease is, so that one can be used several times before
	// it has to be kept alive.
	slack = time.Second

	// grain is slack, and a second by rounding up, and what the server is late: it looks for leases
	// that have expired twice a second, and ends one in a transaction.
	grain = 4 * time.Second

	// maxIdle bounds the seconds of a lease without keys. A longer one is revoked, except the last
	// of an attempt that found the name held, so that a loop of attempts makes one.
	maxIdle = 5 * 60

	// tokensLast is how long the last token of a name is kept at least. One above a floor has to
	// last until clocks have passed it: for driver.MaxLead.
	tokensLast = 48 * time.Hour

	// maxStreams bounds the streams for keep-alives of a Store.
	maxStreams = 16

	// streamPart is how many keep-alives are sent on a stream before others may use it.
	streamPart = 8

	// streamWait is how long a keep-alive waits for a stream before another one is opened.
	streamWait = 100 * time.Millisecond

	// answerBound limits how long each answer to a keep-alive may take.
	answerBound = time.Second
)

// A lease is a lease of the server. It lasts until certain at least. Store.mu guards it.
type lease struct {
	id      clientv3.LeaseID
	seconds int64 // that were requested, 0 if that is not known
	certain time.Time
}

// endsBefore reports whether the lease may end before t. The monotonic clock stands still while the
// system is suspended, so the wall clock counts as well. The caller holds Store.mu.
func (l *lease) endsBefore(t time.Time) bool {
	return l.certain.Before(t) || l.certain.Round(0).Before(t.Round(0))
}

// takeLease returns a lease that lasts until ttl after began at least.
func (s *Store) takeLease(ctx context.Context, began time.Time, ttl time.Duration) (*lease, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	seconds := leaseSeconds(ttl)
	var l *lease
	s.mu.Lock()
	if idle := s.idle[seconds]; len(idle) > 0 {
		l = idle[len(idle)-1]
		s.idle[seconds] = idle[:len(idle)-1]
		if l.endsBefore(began) { // It has ended, and so have those before it.
			l = nil
			delete(s.idle, seconds)
		}
	}
	s.mu.Unlock()
	if l != nil && !s.lastsUntil(l, began.Add(ttl)) {
		deadline, _ := ctx.Deadline()
		half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2) // A new lease may succeed.
		_ = s.keepAlive(half, []*lease{l})
		cancel()
	}
	if l != nil && s.lastsUntil(l, began.Add(ttl)) {
		return l, nil
	}
	return s.grantLease(ctx, 0, seconds)
}

// grantLease makes a lease. The server chooses the ID if it is 0. A request that fails because of
// the network is made again until ctx ends, and one that the members turn away is not.
func (s *Store) grantLease(ctx context.Context, id, seconds int64) (*lease, error) {
	leases := pb.NewLeaseClient(s.client.ActiveConnection()) // The methods of the client repeat both.
	for failures := 0; ; failures++ {
		var resp *pb.LeaseGrantResponse
		sent := time.Now()
		err := s.send(ctx, func(ctx context.Context) (err error) {
			resp, err = leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: seconds})
			return err
		})
		switch {
		case err == nil:
			return &lease{id: clientv3.LeaseID(resp.ID), seconds: seconds, certain: sent.Add(time.Duration(resp.TTL) * time.Second)}, nil
		case isTurnedAway(err):
		case status.Code(err) == codes.Unavailable && backOff(ctx, failures) == nil:
			continue
		case ctx.Err() != nil:
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, driver.NotApplied(s.storeError(rpctypes.Error(err))) // It has no keys, and ends by itself.
	}
}

func leaseSeconds(ttl time.Duration) int64 {
	return int64((ttl + slack + time.Second - 1) / time.Second)
}

func (s *Store) lastsUntil(l *lease, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !l.endsBefore(t)
}

// putLease takes back a lease without keys, which may be nil, or ends one that is long.
func (s *Store) putLease(l *lease) {
	if l == nil {
		return
	}
	if l.seconds == 0 || l.seconds > maxIdle {
		s.revokeLater(l)
		return
	}
	s.stock(l)
}

// stock keeps a lease without keys. A long one replaces all other long ones.
func (s *Store) stock(l *lease) {
	if l.seconds > maxIdle {
		s.endLong()
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := s.idle[l.seconds]
	for len(idle) > 0 && idle[0].endsBefore(now) { // The first one has not been in use for longest.
		idle = idle[1:]
	}
	s.idle[l.seconds] = append(idle, l)
}

// endLong ends the long leases that have no keys.
func (s *Store) endLong() {
	var ended []*lease
	s.mu.Lock()
	for seconds, idle := range s.idle {
		if seconds > maxIdle {
			ended = append(ended, idle...)
			delete(s.idle, seconds)
		}
	}
	s.mu.Unlock()
	for _, l := range ended {
		s.revokeLater(l)
	}
}

// dropRefused ends a lease that the server has refused because it has a key that the user may not
// write, or lets its time end it. Others without keys of this package may have one as well, and are
// not used.
func (s *Store) dropRefused(l *lease) {
	s.mu.Lock()
	clear(s.idle)
	s.mu.Unlock()
	s.revokeLater(l)
}

// revokeLater ends a lease and its keys in the background. Close waits for it, for closeBound at
// most.
func (s *Store) revokeLater(l *lease) {
	s.goWhileOpen(func() {
		ctx, cancel := context.WithTimeout(s.revoking, requestBound)
		defer cancel()
		_ = s.revoke(ctx, l.id) // else its time ends it
	})
}

// counterLease returns a lease for the last token of a name, which lasts for tokensLast at least.
// It is one of 256 of the user and the day, by a hash of the name: few last tokens end at once, and
// a name costs no lease of its own. All clients choose the same one, and the first makes it. The
// days of the leases begin one after the other. One with an ID of its own replaces a lease that was
// refused.
func (s *Store) counterLease(ctx context.Context, name string, refused clientv3.LeaseID) (clientv3.LeaseID, error) {
	hash := sha256.Sum256([]byte(name))
	part := hash[0]
	s.mu.Lock()
	known := s.counters[part]
	isKnown := known != nil && known.id != refused && !known.endsBefore(time.Now().Add(tokensLast))
	s.mu.Unlock()
	if isKnown {
		return known.id, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	const day = 24 * 60 * 60
	now := s.wall().Unix() - int64(part)*day/256
	hash = sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d", s.prefix, s.client.Username, part, now/day))
	id := int64(binary.BigEndian.Uint64(hash[:]) >> 1)
	if refused != 0 {
		id = 0 // The server chooses it.
	}
	for {
		var l *lease
		if id != 0 {
			sent := time.Now()
			left, err := s.timeToLive(ctx, clientv3.LeaseID(id))
			switch {
			case err != nil:
				return 0, driver.NotApplied(s.storeError(err))
			case left.TTL >= int64(tokensLast/time.Second):
				l = &lease{id: left.ID, certain: sent.Add(time.Duration(left.TTL) * time.Second)}
			case left.TTL > 0:
				id = 0 // It is of a client whose clock is far off.
			}
		}
		if l == nil {
			var err error
			l, err = s.grantLease(ctx, id, int64((tokensLast+time.Hour)/time.Second)+day-now%day)
			if errors.Is(err, rpctypes.ErrLeaseExist) {
				continue // Another client was faster.
			}
			if err != nil {
				return 0, err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counters[part] = l
		return l.id, nil
	}
}

// A keepAliveStream keeps leases alive. The server replies in the order of the requests, and a
// follower forwards one at a time to the leader. The zero value has no stream: its user opens one.
type keepAliveStream struct {
	pb.Lease_LeaseKeepAliveClient
	ctx context.Context
	end context.CancelFunc
}

// keepAlive keeps leases alive, and returns when the server has replied for all of them, or ctx
// ends. A reply that comes later counts as well. A lease that has ended is certain until the zero
// time. What is certain counts from before the sending.
func (s *Store) keepAlive(ctx context.Context, leases []*lease) (err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	mayPass := func(err error) bool { return !errors.Is(err, driver.ErrClosed) }
	results := make(chan error, len(leases))
	waits := 0
	for part := range slices.Chunk(leases, streamPart) {
		waits++
		s.goWhileOpen(func() {
			_, err := firstReply(ctx, s, s.tries(), mayPass, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, s.keepPartAlive(ctx, part)
			})
			results <- err
		})
	}
	for ; waits > 0; waits-- {
		select {
		case result := <-results:
			err = cmp.Or(err, result)
		case <-ctx.Done():
			return s.storeError(ctx.Err())
		case <-s.alive.Done():
			return driver.ErrClosed
		}
	}
	return err
}

// keepPartAlive keeps leases alive over one stream. The streams become more while leases wait for
// one.
func (s *Store) keepPartAlive(ctx context.Context, leases []*lease) (err error) {
	var stream keepAliveStream
	wait := time.NewTimer(streamWait)
	defer wait.Stop()
	for isTaken := false; !isTaken; {
		select {
		case stream = <-s.streams:
			isTaken = true
		case <-wait.C:
			s.mu.Lock()
			if s.streamCount < maxStreams {
				s.streamCount++
				s.streams <- keepAliveStream{}
			}
			s.mu.Unlock()
		case <-ctx.Done():
			return s.storeError(ctx.Err())
		case <-s.alive.Done():
			return driver.ErrClosed
		}
	}
	defer func() { s.streams <- stream }()
	for {
		isNew := stream.end == nil
		if isNew {
			stream.ctx, stream.end = context.WithCancel(clientv3.WithRequireLeader(s.alive)) // A member without a leader ends it.
		}
		silence := time.AfterFunc(answerBound, stream.end)
		if isNew {
			stream.Lease_LeaseKeepAliveClient, err = s.leases.LeaseKeepAlive(stream.ctx)
		}
		if err == nil {
			err = s.exchange(stream, leases, silence)
		}
		isSilent := !silence.Stop()
		if err == nil {
			return nil
		}
		stream.end()
		stream = keepAliveStream{}
		switch {
		case s.alive.Err() != nil:
			return driver.ErrClosed
		case isSilent:
			err = fmt.Errorf("no answer to a keep-alive within %v: %w", answerBound, context.DeadlineExceeded)
		}
		if isNew || ctx.Err() != nil {
			return s.storeError(err)
		}
		err = nil // The stream may have ended long ago.
	}
}

// exchange sends a request for each lease, and then reads the replies, each of which delays the end
// of the stream by silence.
func (s *Store) exchange(stream keepAliveStream, leases []*lease, silence *time.Timer) error {
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
		silence.Reset(answerBound)
		s.mu.Lock()
		if end := sent.Add(time.Duration(resp.TTL) * time.Second); resp.TTL <= 0 {
			l.certain = time.Time{}
		} else if end.After(l.certain) {
			l.certain = end
		}
		s.mu.Unlock()
	}
	return nil
}
