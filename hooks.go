package holdfast

import "time"

// Hooks are functions that a Client calls as things happen to its locks, for
// metrics and tracing. Any of them may be nil, which costs nothing. They are
// called synchronously, from many goroutines, and must return quickly: they
// must not block and must not call the Client.
type Hooks struct {
	// Contended: an acquisition found the lock held, and begins to wait. It is
	// called at most once for each, before the matching Waited.
	Contended func(name string, by Record)

	// Waited: a wait is over after d; err is nil if it ended with the lock.
	Waited func(name string, d time.Duration, err error)

	// Acquired: a lock was acquired or adopted, d after the call.
	Acquired func(name string, token int64, d time.Duration)

	// Renewed: a renewal or extension was confirmed, with margin left until the deadline that was
	// in force before. A margin that shrinks towards zero is a warning.
	Renewed func(name string, margin time.Duration)

	// InDoubt: a renewal failed; the lock is still held, for left at most,
	// unless a later attempt succeeds. It is called for each failure.
	InDoubt func(name string, left time.Duration, err error)

	// Lost: a lock was lost after held; reason matches ErrLost.
	Lost func(name string, held time.Duration, reason error)

	// Released: a lock was released or handed over after held; err is not nil
	// if the store did not confirm the release.
	Released func(name string, held time.Duration, err error)
}
