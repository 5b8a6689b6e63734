package driver

import (
	"context"
	"iter"
	"time"
)

// Limits that package holdfast enforces before a store is called.
const (
	// MaxName is the greatest length of a name and of a holder, in bytes.
	MaxName = 255

	// MaxMetadata is the greatest size of the metadata of one hold: the sum of
	// the lengths of its keys and values, in bytes.
	MaxMetadata = 1024

	// MaxMetadataEntries is the greatest number of entries in the metadata.
	MaxMetadataEntries = 16

	// MinTTL and MaxTTL bound every TTL and every Keep that is not zero.
	MinTTL = 10 * time.Millisecond
	MaxTTL = 365 * 24 * time.Hour

	// MaxToken is the greatest fencing token: the greatest integer that the numbers
	// of every language can represent.
	MaxToken = 1<<53 - 1

	// MaxTokens is the greatest number of tokens of one grant.
	MaxTokens = 1024

	// MaxTokensLead is how far above the clock of a store, in time, or above the floor of the
	// request if that is higher, the last token of a grant of several may be.
	MaxTokensLead = 500 * time.Millisecond

	// MaxLead is how far above the clock of a store, in time, the floor of a
	// token may be.
	MaxLead = 24 * time.Hour
)

// A Store keeps locks. The package comment states what applies to all methods. The methods return
// by the deadlines of their contexts, or at most a second after them; [Detach] wraps a store that
// cannot promise that.
type Store interface {
	// Acquire makes one attempt to take a name, and returns the result at once.
	//
	// If the name is free, or its hold or keep has expired, the store grants
	// it: the owner holds it until TTL from now, under a new token. If the same
	// owner holds the name already, the request is a repetition: the store
	// grants it again with the same token, whatever the floor, and ensures
	// that the hold lasts at least until TTL from now. Else the store changes
	// nothing, and reports what it knows of the hold or keep in the way.
	//
	// A failed attempt should not write.
	Acquire(ctx context.Context, req AcquireRequest) (AcquireResult, error)

	// Renew prolongs holds, many in one call: one pipeline, one statement. A
	// hold of the given owner then lasts at least until TTL from now. Renew
	// never shortens a hold, so that requests that overtake each other do no
	// harm. Renew does not change a name that this owner does not hold (expired,
	// broken, kept, or taken by another owner): it never takes a name.
	//
	// The result has an outcome for every request, in order. Where the store
	// has no reply the outcome is RenewUnknown, and the error contains the reason. A
	// nil slice means RenewUnknown for all requests. The outcomes that are known are
	// returned even if the error is not nil.
	Renew(ctx context.Context, reqs []RenewRequest) ([]RenewOutcome, error)

	// Release ends the hold of an owner, and reports whether there was one. If
	// the owner does not hold the name, Release changes nothing and reports
	// false.
	//
	// With Keep above zero the hold ends and the name is kept until Keep from
	// now, sooner or later than the expiry of the hold: the owner can no longer
	// renew it, and no owner can take it. The same Release sent again while the
	// name is kept reports true and may set the end of the keep again. A Release
	// without Keep then changes nothing and reports false.
	Release(ctx context.Context, req ReleaseRequest) (bool, error)

	// Lookup returns the hold or keep of a name, and reports whether there is one.
	// A store that cannot look names up returns ErrUnsupported. A store that knows
	// whether the name is held, but little of the hold, reports that and does not
	// claim Guarantees.Lookup.
	Lookup(ctx context.Context, name string) (Record, bool, error)

	// List yields the record of every name that is held or kept and begins
	// with prefix, in no particular order. A name held throughout the call is
	// yielded once. A name that is taken or becomes free meanwhile may be yielded or
	// not. An error is yielded with a zero Record. The listing goes on after the
	// error if it concerns one record only, and ends with it otherwise. A store
	// that cannot list names yields ErrUnsupported once.
	List(ctx context.Context, prefix string) iter.Seq2[Record, error]

	// Break ends the hold or keep of a name, of any owner. It returns what it ended,
	// and reports whether there was such a hold or keep. The next Renew or Release of
	// the owner reports the loss. Tokens go on rising. A store that cannot break holds
	// returns ErrUnsupported.
	//
	// With a Token above zero, Break ends only the hold or keep whose Record has that
	// token. The store compares the token and ends the hold in one atomic step. If the
	// name is free, or its Record has another token or none, Break changes nothing and
	// reports false.
	Break(ctx context.Context, req BreakRequest) (Record, bool, error)

	// Guarantees returns what the store promises. It returns the same value each
	// time, and sends no request to a server.
	Guarantees() Guarantees

	// Close frees what the store itself has opened, and nothing that was passed
	// to it. It does not release holds, except where they cannot outlive the store.
	// Every later call returns ErrClosed. A second Close returns nil.
	Close() error
}

// A Watcher is a Store that can notify waiters when to try again. Wake-ups are
// hints: package holdfast tries again from time to time without them, and a
// wake-up without cause does no harm beyond its cost.
type Watcher interface {
	Store

	// Watch returns a channel that receives a value soon after each Release or
	// Break of the name, by any process. It returns only when the watch is in
	// force: a release that happens after Watch has returned is signalled. The
	// store also signals when it may have missed a release (a lost connection). The
	// channel has room for one value, and a signal that finds it full is dropped.
	//
	// The watch ends when ctx does. The channel is not closed. A store that
	// finds that it cannot watch here (because its server is too old, for instance)
	// returns ErrUnsupported, and the caller tries at intervals instead.
	Watch(ctx context.Context, name string) (<-chan struct{}, error)
}

// An Alarmer is a Store that notices by itself that holds are lost: by the end of
// a connection, for instance. It saves their holders the time until their next
// renewal.
type Alarmer interface {
	Store

	// OnLoss registers f. The store calls f as soon as it notices that a hold granted
	// through it has ended, other than by its Release or its TTL. It calls f
	// once for each such hold. f does not block. The store may call f until stop has
	// returned, and not after. An alarm must be true: unlike a wake-up, it is not
	// checked.
	OnLoss(f func(name, owner string)) (stop func())
}

// An Identifier is a Store that can identify the place where it keeps its locks, so
// that a quorum is not made of one server under two addresses.
type Identifier interface {
	Store

	// Identity returns a text that is the same for all stores on one server, also if
	// they reach it by different addresses, and different for different servers. It
	// is "" if the server has no such text.
	Identity(ctx context.Context) (string, error)
}

// An AcquireRequest is a request to take a name.
type AcquireRequest struct {
	// Name is the lock.
	Name string

	// Owner is the secret of this acquisition.
	Owner string

	// Holder is the public name of the client that sends the request.
	Holder string

	// TTL is how long the hold lasts unless it is renewed. A store is expected to be
	// precise to a millisecond at least.
	TTL time.Duration

	// Floor is the smallest token to be granted, 0 for any. A floor that is more
	// than MaxLead above the store's clock is refused with ErrInvalid, unless
	// the request is a repetition or the name is held.
	Floor int64

	// Tokens is how many consecutive tokens the grant should have, at most MaxTokens, so that
	// the client can give one to each of several goroutines that hold the name one after the
	// other. 0 means 1. See AcquireResult.Tokens.
	Tokens int

	// Metadata is stored with the hold, for people and tools. Neither the caller nor
	// the store changes the map after the call.
	Metadata map[string]string

	// Detached requests a hold that ends only by Release, Break or its TTL,
	// also where the store frees the holds of a process that has ended. Any process
	// that knows the owner may renew and release it.
	Detached bool
}

// An AcquireResult is the result of an AcquireRequest.
type AcquireResult struct {
	// Granted reports whether the owner now holds the name.
	Granted bool

	// Token is the fencing token of a granted hold, 0 if the store gives none.
	Token int64

	// Tokens is how many consecutive tokens the grant has: Token, and those that follow it. 0
	// means 1. Every later grant of the name has a token above all of them, used or not. A store
	// may grant fewer tokens than requested. It grants one if the last would be further ahead
	// than MaxTokensLead, so that a name does not run ahead of the clock without end. A
	// repetition has no more tokens than the grant that it repeats.
	Tokens int

	// Held describes the hold that is in the way of a request that was not granted,
	// as far as the store knows it without another round trip. The fields that are
	// set are true. A store that claims Guarantees.Lookup sets Remaining at
	// least, which shows a waiter when to try again.
	Held Record
}

// A RenewRequest is a request to prolong one hold.
type RenewRequest struct {
	Name  string
	Owner string
	TTL   time.Duration
}

// A RenewOutcome is the outcome of one RenewRequest.
type RenewOutcome uint8

const (
	// RenewUnknown means that there is no reply. The hold may have been
	// prolonged or not, and may be lost or not.
	RenewUnknown RenewOutcome = iota

	// Renewed means that the hold lasts at least until TTL after the request
	// was sent.
	Renewed

	// RenewLost means that the owner does not hold the name, and never will
	// again.
	RenewLost
)

// A ReleaseRequest is a request to end a hold.
type ReleaseRequest struct {
	Name  string
	Owner string

	// Keep is how long from now no owner may take the name, 0 for not at all.
	Keep time.Duration
}

// A BreakRequest is a request to end a hold of any owner.
type BreakRequest struct {
	Name string

	// Token is the token of the only hold that may be ended, 0 for any hold.
	Token int64
}

// A Record describes the hold of a name, for people and for waiters. It may be out
// of date: by the time it is read the name may be free. Fields that a store does not
// know are zero.
type Record struct {
	// Name is the lock.
	Name string

	// Holder is the public name of the client that holds the name. It is empty when
	// the name is kept after a release or is held by a foreign client.
	Holder string

	// Token is the fencing token of the hold.
	Token int64

	// Since is the beginning of the hold, and Until its end unless it is renewed, by
	// the store's wall clock. They are for people. Only Remaining is fit for
	// calculations.
	Since time.Time
	Until time.Time

	// Remaining is the time left at the moment of the reply, by the store's
	// clock, 0 if the store does not know.
	Remaining time.Duration

	// Kept reports that the hold was released and the name is only kept.
	Kept bool

	// Metadata is that of the AcquireRequest. It must not be changed.
	Metadata map[string]string
}
