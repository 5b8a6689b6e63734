package quorumstore

import (
	"context"
	"time"
)

// limitShare is the part of the Timeout that a request may lose since it shares
// its limits with earlier ones.
const limitShare = 16

// A limit bounds a request. Requests that begin within a short time share it: a
// timer for each, set and stopped, is a good part of what a request costs.
type limit struct {
	caller <-chan struct{} // closed when the caller has waited for the Timeout
	node   context.Context // ends when the node has had it twice, and with Close
	stop   context.CancelFunc
	fresh  time.Time // until when requests may begin
}

// limit returns the limit of a request that begins now. The request runs on for a
// while when its caller has gone, so that its outcome is learnt; and the client
// of a node that sees that there is no hurry may need no goroutine of its own.
func (s *Store) limit() limit {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.last.node == nil || now.After(s.last.fresh) {
		over := make(chan struct{})
		time.AfterFunc(s.timeout, func() { close(over) })
		node, stop := context.WithDeadline(s.alive, now.Add(2*s.timeout)) // The one before ends by itself.
		s.last = limit{caller: over, node: node, stop: stop, fresh: now.Add(s.timeout / limitShare)}
	}
	return s.last
}

// limited is a context with the values of another.
type limited struct {
	context.Context
	values context.Context
}

// Value implements [context.Context]. The limit is asked first, so that package
// context finds what it keeps there.
func (l limited) Value(key any) any {
	if value := l.Context.Value(key); value != nil {
		return value
	}
	return l.values.Value(key)
}
