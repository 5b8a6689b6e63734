package holdfast

import (
	"maps"
	"time"
)

// A nameQueue is what a Client has of one name: its leases, and the line of its callers that wait
// for an exclusive lock behind one of them, the head. They are served first come, first served. The
// head stays in front until its release has returned. Shared and limited callers are in no line:
// each has an entry in the store. Nor is a call without a place: a single attempt, one with
// MaxAttempts, an adoption. One that has the lock exclusively becomes the head, if there is none.
type nameQueue struct {
	leases     []*lease
	head       *lease        // one of the leases; nil if there is none
	line       []*lease      // empty without a head
	known      error         // what was shown last: a HeldError, or why that is not known
	answeredAt time.Duration // when the store has last answered a call, or confirmed a former hold
	outageFrom time.Duration // when the outage began, or was announced to end; 0 without one
	turnEnd    time.Duration // until when a lease is passed on to the line
}

// leases yields the leases of the Client that are in no line. The caller holds c.mu.
func (c *Client) leases(yield func(*lease) bool) {
	for _, q := range c.queues {
		for _, l := range q.leases {
			if !yield(l) {
				return
			}
		}
	}
}

// join gives a reentrant acquisition a further Lock of a reentrant hold of the Client, ends its own
// lease, and reports whether there is such a hold. The caller holds c.mu.
func (l *lease) join() bool {
	for _, other := range l.queue.leases {
		if other.options.Reentrant && other.isHeld() {
			l.handle.lease = other
			other.locks = append(other.locks, &l.handle)
			l.finish(nil)
			return true
		}
	}
	return false
}

// passableTo reports whether a lease with these options may be passed on to a call with those of
// next. What binds a hold to its acquisition forbids it.
func (o *Options) passableTo(next *Options) bool {
	for _, of := range [...]*Options{o, next} {
		if of.MaxHold > 0 || of.NoRenew || of.Reentrant || of.Detached {
			return false
		}
	}
	return o.TTL == next.TTL && maps.Equal(o.Metadata, next.Metadata)
}
