// Package driver is the contract between package holdfast and the stores that
// keep its locks. Most code should use package holdfast. This package is for
// authors of stores.
//
// # What a store is
//
// A store keeps, for every lock name, its holds: of each the owner, the end, and the
// fencing token. An exclusive hold is alone; others are together as AcquireRequest.Limit
// allows. A store makes single attempts against that state and reports what
// it found. It never waits for a lock and never renews by itself. It may retry what is
// its own affair within ctx, such as a split vote or a deadlock. Waiting, backoff,
// renewal, deadlines, loss, the order of goroutines and logging are policy, and all policy is in
// package holdfast.
//
// # The state of a name
//
// A name is free, held, or kept. It is held from the grant of an Acquire until
// a Release or a Break, or until its TTL has run out by the store's own clock.
// It is kept after a Release that requests it (ReleaseRequest.Keep): then the name
// has no owner, and no request can take it until that time is over. Time passes in
// the store's clock only. No store may compare a client's clock with its own.
//
// # The queue of a name
//
// A store that is Fair also keeps the places of owners that wait (AcquireRequest.Queue), in the
// order in which they were made. A place is a lease, as a hold is: Renew prolongs it, and it ends
// by Release or when its time is over. Every request that examines a name first drops what is over
// and admits places from the front, up to the first that may not hold yet, in the same atomic step.
// So no store needs a background task. A store may stop after 200 places or more, if another
// request then goes on from there and nobody overtakes meanwhile. Admission makes a place a hold
// and does not move its end, and the store notifies the owner (Notifier). One owner is admitted at
// most once.
//
// # Owners
//
// Every acquisition has an owner secret of its own, made by package holdfast
// and never used for another. A store compares it whole and byte for byte. It
// must never show it: not in a Record, not in an error, not in a log. People
// may see the holder, a public name that proves nothing.
//
// # Tokens
//
// A fencing token is a positive integer below 2^53. It is granted with the
// hold, in the same atomic step, stays the same during the hold, and is
// strictly greater than every token granted before for that name: across
// expiry, break, restart of the store and loss of its memory. A store achieves
// this by granting
//
//	max(last token of the name + 1, its clock in µs since 1970, requested floor)
//
// so that the counter of a name may be dropped once the store's clock has
// passed it. (After a floor far ahead of the clock, tokens rise across a loss of
// memory only if the store remembers how far it has gone.) A grant may have several
// consecutive tokens (AcquireRequest.Tokens); then the last of them is the last token of the
// name, and [MaxTokensLead] bounds it. A request that could
// only be granted a token above [MaxToken] is invalid. A store that cannot give
// tokens grants 0, and its Guarantees do not claim Fencing.
//
// A floor comes from the clock of a client, which may be wrong. A grant above a
// floor uses up the tokens below it, and the store remembers the name until its
// clock has passed the token. A store therefore refuses a floor that is more
// than [MaxLead] above its clock: the error is [ErrInvalid], and nothing was
// changed. A repetition is granted, and a name that is held is reported as held,
// whatever the floor.
//
// # Results and errors
//
// A name that is held by another owner, a hold that is lost, a name that is
// free: these are results, never errors. An error means that the store could
// not do its work. Every error of Acquire, Renew, Release and Break leaves open
// whether the request was applied, unless it matches [ErrNotApplied]. A store
// must return ErrNotApplied only where it is certain, for instance when the
// request was never sent. Where in doubt it must not, just as package database/sql
// requires for driver.ErrBadConn.
//
// After an error that leaves it open, package holdfast may send the same
// request again, with the same owner. That must be harmless: see each method.
//
// Errors must not contain a URL with a password, an owner secret, or the name
// of the method. Package holdfast adds the operation and the name of the lock.
//
// # Contexts and concurrency
//
// All methods may be called from many goroutines at once. Every method returns by
// the deadline of its context, or at most a second after it, whatever the server,
// the network and the disk do. If the context has ended before the call, the method
// returns soon, with an error. A method may ignore a cancellation before the deadline.
//
// Package holdfast waits for each call on the goroutine of its caller. It gives every call
// of Acquire, Renew, Release, Lookup and Break a deadline, and does not cancel it before, unless
// the Scope of the store is a process. A store whose disk or client library may hang makes its calls
// in goroutines of their own, and leaves them at the end of the context.
//
// A Release sent after an Acquire of the same owner has returned must take
// effect after it.
//
// # Names, holders and metadata
//
// Package holdfast passes on only names and holders of 1 to [MaxName] bytes of
// valid UTF-8 without control characters, metadata of the same characters within
// [MaxMetadata], and owners of such characters that are not empty.
// A store accepts all of them. It keeps different names apart, also those that
// differ only in case.
//
// # Proving a store
//
// Package drivertest runs this contract as a test suite.
package driver
