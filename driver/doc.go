// Package driver is the contract between package holdfast and the stores that keep its locks. Most
// code should use package holdfast. This package is for authors of stores. Package drivertest runs
// the contract as a test suite.
//
// # The queue of a name
//
// A store keeps, for every name, a queue of leased entries, each of one owner and with one token.
// Acquire makes an entry at the end of the queue, Renew looks at it and prolongs it, Release ends
// it. Each is a single attempt; all policy is in package holdfast. An entry also ends when its time
// is over, by the store's own clock, which it reads after it has taken its own locks. No store
// compares a client's clock with its own.
//
// The holds of a name are the longest prefix of its live entries whose length is within every Limit
// in it. The entries behind them are places: they wait. So nothing overtakes, and admission is not
// a state: Lookup, Renew and Acquire compute it. Whatever ends an entry, or finds one ended,
// computes the holds before and after, and the store notifies the owners of those that are new
// (Notifier), after all writes. A place that becomes a hold keeps the end that it had. The end of
// an entry moves nearer by its owner's Release alone. A hold that was broken, or whose end other
// than by its owner the store sees, leads to a notice with token 0 for its owner.
//
// A keep is an entry without an owner, which Release leaves for a time. It counts as the hold did.
// What a client may count on is durable, or is gone as a whole: the grants and renewals of holds;
// the places with them, or all places at once.
//
// # Owners and tokens
//
// Every acquisition has an owner secret of its own, which package holdfast makes. A store compares
// it byte for byte, and never shows it: not in a Record, an error, a log, or a message between
// processes. People may see the holder, a public name that proves nothing.
//
// A fencing token is a positive integer below 2^53. It is made with the entry, in the same atomic
// step, and stays the same. It is greater than every token made before for that name, also across
// a restart of the store and the loss of its memory. A store achieves this by
//
//	max(last token of the name + 1, its clock in µs since 1970, requested floor)
//
// so that the counter of a name may be dropped once the store's clock has passed it. What a crash
// forgets as a whole, such as all places, may be numbered again. A store whose tokens come with the
// grant answers a place with token 0. An entry with several tokens (Request.Tokens) has the
// consecutive ones from its token on, used or not, and is named by the first. A request that needs
// a token above [MaxToken] is invalid. A store without Guarantees.Fencing has token 0 for every
// entry.
//
// # Results, errors and contexts
//
// A name that is held, an entry that is lost, a name that is free: these are results, never errors.
// An error leaves open whether the request was applied, unless it matches [ErrNotApplied], which a
// store returns only where it is certain. A store repeats no request inside, and no client library
// under it does, unless the first one was certainly not applied. What a store has begun to undo it
// reports as Lost from then on. What it has left open it does not undo. Errors contain no password.
// Package holdfast adds the operation and the name of the lock. What a store does not support, by
// its Guarantees or otherwise, it refuses with [ErrUnsupported].
//
// All methods may be called from many goroutines at once. Every method returns by the deadline of
// its context, or at most a second after it, whatever the server, the network and the disk do. A
// method may ignore a cancellation before the deadline, but not one before the call. Package
// holdfast gives every call except List a deadline, unless Guarantees.InProcess. A Release sent
// after the answer to an Acquire of the same owner takes effect after it.
//
// # Names, holders and metadata
//
// Package holdfast passes on only names and holders of 1 to [MaxName] bytes of valid UTF-8 without
// control characters, metadata of the same characters within [MaxMetadata], and owners of such
// characters that are not empty. A store accepts all of them. It keeps different names apart, also
// those that differ only in case.
package driver
