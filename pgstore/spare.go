package pgstore

import (
	"context"
	"time"
)

// renewingHolds is the key of the context of a renewal of holds.
type renewingHolds struct{}

// acquireConn returns a connection of the pool. A renewal of holds that has not got one after half
// of its time makes one beside the pool as well, in turn with other renewals, so that no lock is lost
// while those of the pool are all in use: by other work of the caller, or by requests that wait for
// rows. It keeps its turn in the pool.
func (s *engine) acquireConn(ctx context.Context) (conn, error) {
	pool, isPgx := s.pool.(pgxPool)
	deadline, isBounded := ctx.Deadline()
	if !isPgx || !isBounded || ctx.Value(renewingHolds{}) == nil || !s.beginBackground() {
		return s.pool.acquireConn(ctx)
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.ctx, stop)() // Close does not wait for the pool.
	spare, done := make(chan conn), make(chan struct{})
	defer close(done)
	half := time.AfterFunc(time.Until(deadline)/2, func() {
		defer s.background.Done()
		defer close(spare)
		c, err := s.acquireSpare(waiting, pool)
		if err != nil {
			return
		}
		stop()
		select {
		case spare <- c:
		case <-done:
			c.releaseConn()
		}
	})
	c, err := pool.acquireConn(waiting)
	if half.Stop() {
		s.background.Done()
		return c, err
	}
	if err == nil {
		return c, nil
	}
	select {
	case other, ok := <-spare:
		if ok {
			return other, nil
		}
	case <-ctx.Done(): // A hook of the pool may go on.
	}
	return nil, err
}

// acquireSpare makes a connection beside the pool, when there is no other.
func (s *engine) acquireSpare(ctx context.Context, pool pgxPool) (conn, error) {
	select {
	case s.spare <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c, err := pool.connect(ctx)
	if err != nil {
		<-s.spare
		return nil, err
	}
	disconnect := func() {
		pool.disconnect(c)
		<-s.spare
	}
	return pgxConn{c, c, func() {
		if !s.runInBackground(disconnect) {
			disconnect()
		}
	}}, nil
}
