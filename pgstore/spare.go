package pgstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A spareConn is a connection beside the pool, for renewals of holds while the pool is used up.
// There is one at a time. Renewals that wait for it pass it on, and the last one closes it.
type spareConn struct {
	mu      sync.Mutex
	inUse   bool
	waiters []chan *pgx.Conn // buffered; receive the connection, or nil: then a waiter makes one
}

// renewingHolds is the key of the context of a renewal of holds.
type renewingHolds struct{}

// acquireConn returns a connection of the pool. A renewal of holds that has not got one after half
// of its time waits for the spare connection as well, so that no lock is lost while those of the
// pool are all in use: by other work of the caller, or by requests that wait for rows. It keeps its
// turn in the pool.
func (s *Store) acquireConn(ctx context.Context) (conn, error) {
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

// acquireSpare returns the spare connection, which it makes if none is passed on.
func (s *Store) acquireSpare(ctx context.Context, pool pgxPool) (conn, error) {
	spare := &s.spare
	var c *pgx.Conn
	spare.mu.Lock()
	if spare.inUse {
		passedOn := make(chan *pgx.Conn, 1)
		spare.waiters = append(spare.waiters, passedOn)
		spare.mu.Unlock()
		select {
		case c = <-passedOn:
		case <-ctx.Done():
			spare.mu.Lock()
			i := slices.Index(spare.waiters, passedOn)
			if i >= 0 {
				spare.waiters = slices.Delete(spare.waiters, i, i+1)
			}
			spare.mu.Unlock()
			if i < 0 {
				s.releaseSpare(pool, <-passedOn)
			}
			return nil, ctx.Err()
		}
	} else {
		spare.inUse = true
		spare.mu.Unlock()
	}
	if c == nil {
		var err error
		if c, err = pool.connect(ctx); err != nil {
			s.releaseSpare(pool, nil)
			return nil, err
		}
	}
	return pgxConn{c, c, func() { s.releaseSpare(pool, c) }}, nil
}

// releaseSpare passes the spare connection on, or closes it in the background. c is nil if there is
// none.
func (s *Store) releaseSpare(pool pgxPool, c *pgx.Conn) {
	spare := &s.spare
	if c != nil && c.IsClosed() {
		c = nil
	}
	spare.mu.Lock()
	passedOn := len(spare.waiters) > 0
	if passedOn {
		spare.waiters[0] <- c
		spare.waiters = spare.waiters[1:]
	} else if c == nil {
		spare.inUse = false
	}
	spare.mu.Unlock()
	if passedOn || c == nil {
		return
	}
	disconnect := func() {
		pool.disconnect(c)
		s.releaseSpare(pool, nil) // A renewal may wait meanwhile.
	}
	if !s.runInBackground(disconnect) {
		disconnect()
	}
}
