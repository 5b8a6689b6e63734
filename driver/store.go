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

	// MaxToken is the greatest fencing token: the greatest integer that every
	// language's numbers can hold.
	MaxToken = 1<<53 - 1
)

// A Store keeps locks. The package comment states what holds for all methods.
type Store interface {
	// Acquire makes one attempt to take a name and answers at once, whether it
	// could or not.
	//
	// If the name is free, or its hold or keep has expired, the store grants
	// it: the owner holds it until TTL from now, under a new token. If the name
	// is held by this very owner, the request is a repetition: the store
	// grants it again with the same token, whatever the floor, and sees to it
	// that the hold lasts at least until TTL from now. Else the store changes
	// nothing, and says what it knows of the hold in the way.
	//
	// A failed attempt should not write.
	Acquire(ctx context.Context, req AcquireRequest) (AcquireResult, error)

	// Renew prolongs holds, many in one call: one pipeline, one statement. A
	// hold of the given owner then lasts at least until TTL from now; Renew
	// never shortens one, so that requests that overtake each other do no
	// harm. A name that this owner does not hold (expired, broken, kept, or
	// taken by another) is left as it is: Renew never takes a name.
	//
	// The result has an outcome for every request, in order. Where the store
	// has no answer the outcome is RenewUnknown and the error says why; a nil
	// slice stands for unknown throughout. The answers that did come are given
	// even if the error is not nil.
	Renew(ctx context.Context, reqs []RenewRequest) ([]RenewOutcome, error)

	// Release ends the hold of an owner, and reports whether there was one. If
	// the owner does not hold the name, Release changes nothing and reports
	// false.
	//
	// With Keep above zero the hold ends and the name is kept until Keep from
	// now, be that sooner or later than its expiry: the owner can no longer
	// renew it, and nobody can take it. The same Release sent again while the
	// name is kept reports true and may set the time anew; one without Keep
	// changes nothing then and reports false.
	Release(ctx context.Context, req ReleaseRequest) (bool, error)

	// Lookup reports the hold or keep of a name, and whether there is one.
	// A store that cannot tell returns ErrUnsupported.
	Lookup(ctx context.Context, name string) (Record, bool, error)

	// List yields the record of every name that is held or kept and begins
	// with prefix, in no order. A name held throughout the call is yielded
	// once; one that comes or goes meanwhile may be yielded or not. An error is
	// yielded with a zero Record: the listing goes on after it if the error
	// concerns one record only, and ends with it otherwise. A store that
	// cannot tell yields ErrUnsupported once.
	List(ctx context.Context, prefix string) iter.Seq2[Record, error]

	// Break ends whatever hold or keep a name has, whoever owns it, and reports
	// what it ended, if anything. The owner learns of it by its next Renew or
	// Release. Tokens go on rising. A store that cannot returns ErrUnsupported.
	Break(ctx context.Context, name string) (Record, bool, error)

	// Guarantees says what the store promises. It returns the same answer each
	// time, without asking a server.
	Guarantees() Guarantees

	// Close frees what the store itself has opened, and nothing that was handed
	// to it. It does not release holds, except where they cannot outlive it.
	// Every later call returns ErrClosed; a second Close returns nil.
	Close() error
}

// A Watcher is a Store that can tell waiters when to try again. Wake-ups are
// hints: package holdfast tries again from time to time without them, and a
// wake-up without cause does no harm beyond its cost.
type Watcher interface {
	Store

	// Watch returns a channel that receives a value soon after each Release or
	// Break of the name, by whichever process. It returns only when the watch
	// is in force: a release that happens after Watch has returned is
	// signalled. When the store may have missed one (a lost connection), it
	// signals as well. The channel has room for one value, and a signal that
	// finds it full is dropped.
	//
	// The watch ends when ctx does; the channel is not closed. A store that
	// finds that it cannot watch here (its server is too old, say) returns
	// ErrUnsupported, and the caller tries at intervals instead.
	Watch(ctx context.Context, name string) (<-chan struct{}, error)
}

// A Starter is a Store that can begin a request and tell its outcome later, so
// that whoever asks many stores at once needs no goroutine for each.
//
// StartAcquire and StartRelease do what Acquire and Release do, and call done
// once with what those would have returned: before they return, or later from
// another goroutine. done must be quick, and may begin further requests. What is
// asked for before done is called may overtake the request. It is not sent after
// the end of ctx, but done may be called a few seconds later than that: who
// cannot wait has a timer of his own.
type Starter interface {
	Store

	StartAcquire(ctx context.Context, req AcquireRequest, done func(AcquireResult, error))
	StartRelease(ctx context.Context, req ReleaseRequest, done func(bool, error))
}

// An Alarmer is a Store that learns by itself that holds are lost: by the end of
// a connection, say. It saves their holders the time until their next renewal.
type Alarmer interface {
	Store

	// OnLoss has f called as soon as the store learns that a hold which was
	// granted through it is over, other than by its Release or its TTL. f is
	// called once for each such hold and does not block. It may be called until
	// stop has returned, and no longer. An alarm must be true: unlike a wake-up
	// it is not checked.
	OnLoss(f func(name, owner string)) (stop func())
}

// An AcquireRequest asks for a name.
type AcquireRequest struct {
	// Name is the lock.
	Name string

	// Owner is the secret of this acquisition.
	Owner string

	// Holder is the public name of the one who asks.
	Holder string

	// TTL is how long the hold lasts unless it is renewed: at least a
	// millisecond's precision is expected of a store.
	TTL time.Duration

	// Floor is the smallest token to be granted, 0 for any.
	Floor int64

	// Metadata is kept with the hold, for people and tools. Neither side
	// changes the map once it has been handed over.
	Metadata map[string]string

	// Detached asks for a hold that ends by Release, Break or its TTL alone,
	// also where the store frees the holds of a process that has ended: whoever
	// knows the owner may renew and release it, from any process.
	Detached bool

	// Patient says that the context ends by its deadline only, if it ends at
	// all: a store that [BlocksToContext] need not be ready for anything else.
	Patient bool
}

// An AcquireResult is the answer to an AcquireRequest.
type AcquireResult struct {
	// Granted reports whether the owner now holds the name.
	Granted bool

	// Token is the fencing token of a granted hold, 0 if the store gives none.
	Token int64

	// Held describes the hold that is in the way of one that was not granted,
	// as far as the store can tell without another round trip. What is given
	// is true. A store that can tell (Guarantees.Lookup) gives Remaining at
	// least: it tells a waiter when to try again.
	Held Record
}

// A RenewRequest asks to prolong one hold.
type RenewRequest struct {
	Name  string
	Owner string
	TTL   time.Duration
}

// A RenewOutcome is what became of one RenewRequest.
type RenewOutcome uint8

const (
	// RenewUnknown means that there is no answer; the hold may have been
	// prolonged or not, and may be lost or not.
	RenewUnknown RenewOutcome = iota

	// Renewed means that the hold lasts at least until TTL after the request
	// was sent.
	Renewed

	// RenewLost means that the owner does not hold the name, and never will
	// again.
	RenewLost
)

// A ReleaseRequest asks to end a hold.
type ReleaseRequest struct {
	Name  string
	Owner string

	// Keep is for how long from now nobody may take the name, 0 for not at all.
	Keep time.Duration
}

// A Record describes the hold of a name, for people and for waiters. It is a
// picture of the past: by the time it is read the name may be free. Fields that
// a store does not know are zero.
type Record struct {
	// Name is the lock.
	Name string

	// Holder is the public name of the one who holds it, empty when the name
	// is kept after a release or is held by a foreign client.
	Holder string

	// Token is the fencing token of the hold.
	Token int64

	// Since and Until are the begin of the hold and its end unless it is
	// renewed, by the store's wall clock. They are for people; only Remaining
	// is good for reckoning.
	Since time.Time
	Until time.Time

	// Remaining is the time left at the moment of the answer, by the store's
	// clock, 0 if the store does not know.
	Remaining time.Duration

	// Kept reports that the hold was released and the name is only kept.
	Kept bool

	// Metadata came with the acquisition. It must not be changed.
	Metadata map[string]string
}
