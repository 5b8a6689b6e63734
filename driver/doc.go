// Package driver is the contract between package holdfast and the stores that
// keep its locks. Most code should use package holdfast. This package is for
// authors of stores.
//
// # What a store is
//
// A store keeps, for every name, a queue of leased entries, each of one owner and with one token. A
// store makes single attempts and reports what it found. It never waits for a lock and never renews
// by itself. Waiting, backoff, renewal, deadlines, loss, the order of goroutines and logging are
// policy, and all policy is in package holdfast.
//
// # The queue of a name
//
// Acquire makes an entry at the end of the queue, Renew looks at it and prolongs it, Release ends
// it. An entry also ends when its time is over, by the store's own clock. No store may compare a
// client's clock with its own, and a store reads its clock after it has taken its own locks.
//
// The holds of a name are the longest prefix of its live entries whose length is within every Limit
// in it. The entries behind them are places: they wait. So nothing overtakes, and admission is not a
// state: Lookup, Renew and Acquire compute it. Whatever ends an entry, or finds one ended, computes
// the holds before and after, and the store notifies the owners of those that are new (Notifier),
// after all writes. A place that becomes a hold keeps the end that it had. The end of an entry never
// moves nearer.
//
// A keep is an entry without an owner, which Release leaves for a time (ReleaseRequest.Keep). It
// counts as the hold did. A hold that was broken, and one whose end other than by its owner the
// store sees, leads to a notice with token 0 for its owner.
//
// What a client may count on is durable, or is gone as a whole: the grants and renewals of holds; the
// places with them, or all places at once.
//
// # Owners
//
// Every acquisition has an owner secret of its own, made by package holdfast and never used for
// another. A store compares it whole and byte for byte. It must never show it: not in a Record, not
// in an error, not in a log, not in a message between processes. People may see the holder, a public
// name that proves nothing.
//
// # Tokens
//
// A fencing token is a positive integer below 2^53. It is made with the entry, in the same atomic
// step, and stays the same. It is strictly greater than every token made before for that name:
// across expiry, break, restart of the store and loss of its memory. So the tokens of a name are in
// the order of its queue, and grants rise. A store achieves this by
//
//	max(last token of the name + 1, its clock in µs since 1970, requested floor)
//
// so that the counter of a name may be dropped once the store's clock has passed it. What a crash
// forgets as a whole, such as all places, may be numbered again. A store whose tokens come with the
// grant answers a place with token 0. An entry with several tokens (Request.Tokens) has the
// consecutive ones from its token on, used or not. A request that needs a token above [MaxToken] is
// invalid. A store without Guarantees.Fencing has token 0 for every entry.
//
// # Results and errors
//
// A name that is held, an entry that is lost, a name that is free: these are results, never errors.
// An error means that the store could not do its work. Every error of Acquire, Renew, Release and
// Break leaves open whether the request was applied, unless it matches [ErrNotApplied]. A store must
// return ErrNotApplied only where it is certain, for instance when the request was never sent. A
// store repeats no request inside, and no client library under it does, unless the first one was
// certainly not applied. What a store has begun to undo it reports as Lost from then on. What it has
// left open it does not undo.
//
// Errors must not contain a URL with a password, an owner secret, or the name of the method.
// Package holdfast adds the operation and the name of the lock.
//
// # Contexts and concurrency
//
// All methods may be called from many goroutines at once. Every method returns by the deadline of
// its context, or at most a second after it, whatever the server, the network and the disk do. If
// the context has ended before the call, the method returns soon, with an error. A method may ignore
// a cancellation before the deadline. Package holdfast gives every call except List a deadline,
// unless Guarantees.InProcess. A Release sent after an Acquire of the same owner has returned must
// take effect after it.
//
// # Names, holders and metadata
//
// Package holdfast passes on only names and holders of 1 to [MaxName] bytes of valid UTF-8 without
// control characters, metadata of the same characters within [MaxMetadata], and owners of such
// characters that are not empty. A store accepts all of them. It keeps different names apart, also
// those that differ only in case.
//
// # Proving a store
//
// Package drivertest runs this contract as a test suite.
package driver
