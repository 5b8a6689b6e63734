package holdfast

import (
	"context"
	"time"
)

// Hooks are two functions that a Client calls as things happen to its locks, for metrics and
// traces. Either may be nil, which costs nothing. They are called synchronously, from many
// goroutines, and must return quickly: they must not block and must not call the Client.
//
// The kinds of events form pairs, so that their counts show what is open:
//
//   - Each Start is followed by one of EventAcquired, EventJoined, EventRefused and EventFailed.
//   - Each EventAcquired is followed by one of EventReleased, EventKept, EventHandedOver and
//     EventLost.
//   - Each EventWaiting is followed by an EventWaited.
//
// When Close returns, no hold and no wait is open, and all events have returned. In a race the end
// of a hold may come before its begin, if it ends while the hook for the begin runs.
type Hooks struct {
	// Start is called when an acquisition begins, before its first request. The context that it
	// returns takes the place of ctx: it is that of its Acquire requests, of the events and of
	// Lock.Context. It must be ctx or a context that is derived from ctx.
	Start func(ctx context.Context, s Start) context.Context

	// Event is called for each event. Its context has the values of that of the acquisition; for
	// EventRequest, of that of the call that sends the request. It may have ended.
	Event func(ctx context.Context, e Event)
}

// A Start describes an acquisition that begins: one call of Acquire, TryAcquire or Adopt.
// AcquireAll begins one for each of its attempts at each name. A call with an argument that is out
// of bounds, with a context that has ended, or after Close, begins none.
type Start struct {
	Op     string // "acquire", "try" or "adopt"
	Store  string // the kind of store, Guarantees().Store
	Name   string // of the lock, without the Client's prefix
	Holder string // the Client's public name
	TTL    time.Duration
}

// An Event is something that happened to a lock. Fields that its kind does not name are zero. A
// later version may have further kinds and fields.
type Event struct {
	Kind   EventKind
	Store  string // the kind of store, Guarantees().Store
	Name   string // of the lock, without the Client's prefix; "" for EventRequest
	Holder string // the Client's public name
	Token  int64  // the fencing token, from EventAcquired or EventJoined on
	Op     string // the request of an EventRequest: "acquire", "renew", "release", "lookup", "break"

	Took time.Duration // how long the acquisition, wait, release or request has taken
	Held time.Duration // how long the lock was held

	// Left is how long the lock is still held without a further renewal; for EventRenewed by the
	// deadline that was in force before; for EventKept how long the name stays taken.
	Left time.Duration

	TTL time.Duration // for which the store had promised the lock; Left is the rest of it
	By  *Record       // the holder that is waited for; nil except for EventWaiting
	Err error         // why the event is not a success
}

// An EventKind is what has happened, in words.
type EventKind string

const (
	// EventWaiting: the acquisition found the lock held by By, and begins to wait. By is this
	// Client, without a token, if it waits behind another goroutine of this Client that has no
	// answer yet.
	EventWaiting EventKind = "waiting"

	// EventWaited: such a wait is over, since the acquisition is; Took, Err.
	EventWaited EventKind = "waited"

	// EventAcquired: a hold has begun, by an acquisition or an adoption; Token, Took, TTL.
	EventAcquired EventKind = "acquired"

	// EventJoined: a reentrant acquisition has joined a hold of this Client; Token, Took, TTL. The
	// end of that hold is reported once, after its last Release.
	EventJoined EventKind = "joined"

	// EventRefused: the acquisition has ended without the lock, which was held; Took, Err. Err
	// matches ErrHeld, and the error of the context if that ended a wait.
	EventRefused EventKind = "refused"

	// EventFailed: the acquisition has ended without the lock, and the store has not answered that
	// it was held; Took, Err.
	EventFailed EventKind = "failed"

	// EventRenewed: a renewal or extension was confirmed, other than the one that gives a hold its
	// TTL in place of that of the place; Token, Left, TTL. Left is two thirds of TTL or more, and
	// falls towards zero when renewals are late.
	EventRenewed EventKind = "renewed"

	// EventInDoubt: a renewal or extension has failed; Token, Left, TTL, Err. The lock is held, and
	// lost if no later one is confirmed.
	EventInDoubt EventKind = "in doubt"

	// EventReleased: the hold has ended by a release; Token, Held, Took, and Err if the store has
	// not confirmed it. A lock that was passed on to another goroutine (see Config.LocalTurn) was
	// released.
	EventReleased EventKind = "released"

	// EventKept: as EventReleased, and the name stays taken for Left: see Lock.ReleaseKeep.
	EventKept EventKind = "kept"

	// EventHandedOver: the hold goes on elsewhere by a ticket, and has ended here; Token, Held.
	EventHandedOver EventKind = "handed over"

	// EventLost: the hold has ended through no doing of its holder, or its release has shown that
	// it had; Token, Held, Err. Err is a LostError.
	EventLost EventKind = "lost"

	// EventRequest: the store has answered a request, or failed to; Op, Took, Err. That a lock is
	// held, or is held no more, is an answer. Requests that Ping sends are among them, the pages of
	// List are not. One request can renew many locks.
	EventRequest EventKind = "request"
)

// JoinHooks returns Hooks that call the functions of all hooks, in their order. Each Start gets the
// context that the one before has returned.
func JoinHooks(hooks ...Hooks) Hooks {
	return Hooks{
		Start: func(ctx context.Context, s Start) context.Context {
			for _, h := range hooks {
				if h.Start != nil {
					ctx = h.Start(ctx, s)
				}
			}
			return ctx
		},
		Event: func(ctx context.Context, e Event) {
			for _, h := range hooks {
				if h.Event != nil {
					h.Event(ctx, e)
				}
			}
		},
	}
}

// emit logs an event, if people look for it, and calls the hooks.
func (c *Client) emit(ctx context.Context, e Event) {
	if log := c.config.Logger; log != nil {
		switch e.Kind {
		case EventWaiting:
			log.DebugContext(ctx, "waiting for lock", "name", e.Name, "holder", e.By.Holder, "since", e.By.Since)
		case EventAcquired, EventJoined:
			log.DebugContext(ctx, "lock acquired", "name", e.Name, "token", e.Token, "waited", e.Took)
		case EventLost:
			c.logWarning(ctx, "lock lost", e.Name, e.Err)
		case EventReleased, EventKept, EventHandedOver:
			if e.Err != nil {
				c.logWarning(ctx, "release not confirmed", e.Name, e.Err)
			} else {
				log.DebugContext(ctx, "lock "+string(e.Kind), "name", e.Name, "token", e.Token, "held", e.Held)
			}
		}
	}
	if c.config.Hooks.Event != nil {
		e.Store, e.Holder = c.guarantees.Store, c.config.Holder
		c.config.Hooks.Event(ctx, e)
	}
}

// emit completes an event of the lease and emits it.
func (l *lease) emit(e Event) {
	if l.c.watched {
		e.Name, e.Token = l.c.stripPrefix(l.name), l.tokens.own
		l.c.emit(l.ctx, e)
	}
}
