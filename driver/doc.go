// Package driver is the contract between package holdfast and the stores that
// keep its locks. Most code should use package holdfast; this package is for
// those who write a store.
//
// # What a store is
//
// A store keeps, for every lock name, at most one hold: who owns it, until
// when, and under which fencing token. It makes single attempts against that
// state and reports what it found. It never waits for a lock, never retries,
// never renews by itself, and starts no timer for a hold: waiting, back-off,
// renewal, deadlines, loss, queueing and logging are policy, and all policy
// lives in package holdfast.
//
// # The state of a name
//
// A name is free, held, or kept. It is held from the grant of an Acquire until
// a Release or a Break, or until its TTL has run out by the store's own clock.
// It is kept after a Release that asked for it (ReleaseRequest.Keep): nobody
// owns it and nobody can take it until that time is over. Time passes in the
// store's clock only; no store may compare a client's clock with its own.
//
// # Owners
//
// Every acquisition has an owner secret of its own, made by package holdfast
// and never used for another. A store compares it whole and byte for byte. It
// must never show it: not in a Record, not in an error, not in a log. What
// people may see is the holder, which says who they are and proves nothing.
//
// # Tokens
//
// A fencing token is a positive integer below 2^53. It is granted with the
// hold, in the same atomic step, stays the same during the hold, and is
// strictly greater than every token granted before for that name: across
// expiry, break, restart of the store and loss of its memory. A store gets
// there by granting
//
//	max(last token of the name + 1, its clock in µs since 1970, floor asked for)
//
// so that the counter of a name may be dropped once the store's clock has
// passed it. (After a floor far ahead of the clock, tokens rise across a loss of
// memory only if the store remembers how far it has gone.) A request that could
// only be granted a token above [MaxToken] is invalid. A store that cannot give
// tokens grants 0 and says so in its Guarantees.
//
// # Results and errors
//
// That a name is held by somebody else, that a hold is lost, that a name is
// free: these are results, never errors. An error means that the store could
// not do its work. Every error of Acquire, Renew, Release and Break leaves open
// whether the request was applied, unless it matches [ErrNotApplied]. A store
// must return ErrNotApplied only where it is certain, for instance when the
// request was never sent; where in doubt it must not, as package database/sql
// asks of driver.ErrBadConn.
//
// After an error that leaves it open, package holdfast may send the same
// request again, with the same owner. That must be harmless: see each method.
//
// Errors must not contain a URL with a password, an owner secret, or the name
// of the method; package holdfast adds the operation and the name of the lock.
//
// # Contexts and concurrency
//
// All methods may be called from many goroutines at once. When its context
// ends, or has ended before the call, a method returns soon, with an error. How
// far that can be relied on is told by Guarantees.Blocking: package holdfast
// gives every call a deadline, unless the store is one that [BlocksNever], and
// stops waiting then, whatever a store does that [BlocksForLong].
//
// A Release sent after an Acquire of the same owner has returned must take
// effect after it.
//
// # Names, holders and metadata
//
// Package holdfast passes on only names and holders of 1 to [MaxName] bytes of
// valid UTF-8 without control characters, metadata of the same characters within
// [MaxMetadata], and owners of such characters that are not empty.
// A store accepts every one of them and keeps different names apart, those
// that differ only in case too.
//
// # Proving a store
//
// Package drivertest runs this contract as a test suite.
package driver
