// Package olddriver is the contract of the second edition, and an adapter from the contract of
// package driver to it. The stores that are not written anew yet run on it. It goes with the last
// of them.
package olddriver

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// Shared is the Limit of a shared hold, and MaxLimit the greatest Limit.
	Shared   = -1
	MaxLimit = 1<<31 - 1

	// MaxTokens is the greatest number of tokens of one grant.
	MaxTokens = 1024

	// MaxTokensLead is how far above the clock of a store, in time, or above the floor of the
	// request if that is higher, the last token of a grant of several may be.
	MaxTokensLead = driver.MaxLead
)

// A Store keeps locks. The package comment states what applies to all methods. The methods return
// by the deadlines of their contexts, or at most a second after them.
type Store interface {
	// Acquire makes one attempt to take a name, and returns the result at once.
	//
	// If the name is free, or its hold or keep has expired, or the request tolerates its holds (see
	// Limit), and no other owner has a place in its queue, the store grants it: the owner holds it
	// until TTL from now, under a new token. If the same owner holds the name already, the request
	// is a repetition: the store grants it again with the same token, whatever the floor, and
	// ensures that the hold lasts at least until TTL from now. Else the request is not granted, and
	// the result describes the hold or keep in the way as far as possible. It changes nothing
	// then, except as Queue requests.
	//
	// A failed attempt without Queue should not write.
	Acquire(ctx context.Context, req AcquireRequest) (AcquireResult, error)

	// Renew prolongs holds and places, many in one call: one pipeline, one statement.
	// A hold or place of the given owner then lasts at least until TTL from now. Renew
	// never shortens one, so that requests that overtake each other do no
	// harm. Renew does not change a name that this owner does not hold (expired,
	// broken, kept, or taken by another owner), unless the owner has a place there: it
	// never takes a name, and never makes a place.
	//
	// The result has an outcome for every request, in order. Where the store
	// has no reply the outcome is RenewUnknown, and the error contains the reason. A
	// nil slice means RenewUnknown for all requests. The outcomes that are known are
	// returned even if the error is not nil.
	Renew(ctx context.Context, reqs []RenewRequest) ([]RenewOutcome, error)

	// Release ends the hold or the place of an owner, and reports whether there was one. If
	// the owner has neither, Release changes nothing and reports false.
	//
	// With Keep above zero the hold ends and the name is kept until Keep from
	// now, sooner or later than the expiry of the hold: the owner can no longer
	// renew it, and no owner can take it. The same Release sent again while the
	// name is kept reports true and may set the end of the keep again. A Release
	// without Keep then changes nothing and reports false. A place has nothing to keep:
	// it ends, and Release reports false.
	Release(ctx context.Context, req ReleaseRequest) (bool, error)

	// Lookup returns the hold or keep of a name, and reports whether there is one. If the name has
	// several, it returns the oldest, with the others in Record.Others.
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

	// Break ends the hold or keep of a name, of any owner, and if it has several, all of them. It
	// returns what it ended, and reports whether there was such a hold or keep. The next Renew or
	// Release of the owner reports the loss. Tokens go on rising. A store that cannot break holds
	// returns ErrUnsupported.
	//
	// With a Token above zero, Break ends only the hold or keep whose Record has that
	// token. The store compares the token and ends the hold in one atomic step. If the
	// name has no such Record, Break changes nothing and reports false.
	Break(ctx context.Context, req BreakRequest) (Record, bool, error)

	// Guarantees returns what the store promises. It returns the same value each
	// time, and sends no request to a server.
	Guarantees() Guarantees

	// Close frees what the store itself has opened, and nothing that was passed
	// to it. It does not release holds, except where they cannot outlive the store.
	// Every later call returns ErrClosed. A second Close returns nil.
	Close() error
}

// A Notifier is a Store that notifies the process of its holds and places, so that waiters and
// holders need few requests. A lost notice costs time and nothing else, since package holdfast also
// polls at long intervals.
type Notifier interface {
	Store

	// Notify registers f. The store calls f for each Notice that concerns a request sent through
	// it. It may call f from any goroutine, several at once, until stop has returned, and not
	// after. f does not block. A notice may come before the reply to the request that it concerns.
	// The store sends no request to a server on behalf of Notify itself.
	Notify(f func(Notice)) (stop func())
}

// A Notice is what a store reports by itself.
type Notice struct {
	Kind NoticeKind

	// Name and Owner identify the hold or place. Owner is "" for all of the name. Name is "", too,
	// for all that were requested through this Store.
	Name  string
	Owner string

	// Token and Tokens are those of the grant, as in AcquireResult. Only Granted has them.
	Token  int64
	Tokens int
}

// A NoticeKind is the kind of a Notice.
type NoticeKind uint8

const (
	// Granted means that the place of Owner was admitted by the request of another client. The hold
	// ends when the place would have ended: the admission does not prolong it. Name, Owner and
	// Token are set. The store never sends it for a hold that it has not made, even if the request
	// that made it was answered with an error. A store that cannot be certain sends Ask.
	Granted NoticeKind = iota + 1

	// Ask means that the state of the name may have changed: the waiter should send another
	// request, a Claim if the store is Fair. A needless Ask costs one request.
	Ask

	// Lost means that a hold granted through this Store has ended, other than by its Release or its
	// TTL. The store sends it once for each such hold. It must be true, since it is not checked.
	Lost
)

// An AcquireRequest is a request to take a name.
type AcquireRequest struct {
	// Name is the lock.
	Name string

	// Owner is the secret of this acquisition.
	Owner string

	// Holder is the public name of the client that sends the request.
	Holder string

	// TTL is how long the hold lasts unless it is renewed, and up to Guarantees.Grain longer.
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

	// Queue is how long the owner waits from now if the name cannot be granted, 0 for not at all.
	//
	// A store that is Fair gives the owner a place at the end of the queue of the name, which keeps
	// all that the request contains. The place lasts until Queue from now unless it is renewed.
	// When its turn comes, the store makes it a hold, in one atomic step with the end of the hold
	// before it, and sends a Granted notice. That hold has the end of the place until it is
	// renewed. An owner that has a place already keeps it, and it is prolonged.
	//
	// One owner is admitted at most once. Therefore a request with Queue is sent once for an owner
	// to a store that is Fair. If its outcome is unknown, it is sent again as a Claim.
	//
	// Any other store sends an Ask notice when the name may have become free, for Queue from now.
	// It begins to do so before it examines the name, so that no release is missed.
	Queue time.Duration

	// Claim recognizes the hold or the place of the owner and makes neither. A hold is granted
	// again and lasts until TTL from now at least. A place lasts until Queue from now at least. If
	// the owner has neither, or only a keep, the request is not granted and not queued, though the
	// name may be free. Only a store that is Fair is sent a Claim; any other returns
	// ErrUnsupported.
	Claim bool

	// Limit defines which other holds of the name the hold tolerates. Every hold has a
	// lease and a token of its own, and tokens rise in the order of the grants.
	//
	//   - Limit 0: an exclusive hold. It tolerates no other.
	//   - Limit Shared: a shared hold. It tolerates all but exclusive holds.
	//   - Limit above 0: a limited hold. It tolerates all but exclusive holds, as long as the
	//     limited holds, its own included, are not more than Limit.
	//
	// A hold is judged by its own Limit, which need not be that of the others. What a hold
	// tolerates, a keep after it tolerates, too.
	//
	// No request is granted past a waiter: on a store that is Fair places are admitted in order,
	// and the first that may not hold yet stops those behind it. On any other store a waiter that
	// is refused because of holds which tolerate later requests keeps these out as long as its
	// Queue lasts, or until its Release, if the answer is Queued.
	//
	// A store without Guarantees.Shared or Guarantees.Limited returns ErrUnsupported.
	Limit int
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

	// Queued reports that the request was not granted and waits as Queue requests: the owner has a
	// place, or gets Ask notices.
	Queued bool

	// First reports that no other place is before that of the owner. At the end of Held.Remaining
	// the store may admit it no sooner than by the next request.
	First bool

	// Held describes the hold that is in the way of a request that was not granted,
	// as far as that takes no further round trip. The fields that are
	// set are true. A store that claims Guarantees.Lookup sets Remaining at
	// least, which shows a waiter when to try again, unless the answer is Queued and not First.
	Held Record
}

// A RenewRequest is a request to prolong one hold or place.
type RenewRequest struct {
	Name  string
	Owner string
	TTL   time.Duration

	// Token is the first token of the grant, for a hold. The hold is lost if it has another: a
	// store that has fallen back to an earlier state may have admitted the owner again. It is 0 for
	// a place, for a hold without a token, and where the token is not known.
	Token int64
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
	// again. It has no place either.
	RenewLost

	// RenewQueued means that the place of the owner lasts at least until TTL after the request was
	// sent. It answers only a request without a Token. The answer for a place that was admitted
	// meanwhile is Renewed; a Claim shows its token.
	RenewQueued
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

	// Token is the token of the only hold that may be ended, the first of its grant as in its
	// Record, 0 for any hold.
	Token int64
}

// A Record describes the hold of a name, for people and for waiters. It may be out
// of date: by the time it is read the name may be free. Unknown fields are zero.
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
	// clock, 0 if it is not known.
	Remaining time.Duration

	// Kept reports that the hold was released and the name is only kept.
	Kept bool

	// Limit is that of the AcquireRequest.
	Limit int

	// Others are the other holds and keeps of the name, oldest first, in a Record of Lookup, List
	// or Break. They have no Others and no Waiting.
	Others []Record

	// Waiting is how many owners have places in the queue of the name: one for each Client that
	// waits, for all its goroutines, and that of the caller, too. A store that keeps a queue
	// reports it by Lookup and List. With the answer that a name is held it may be 0. Of a
	// long queue a store may count places that are over, too.
	Waiting int

	// Metadata is that of the AcquireRequest. It must not be changed.
	Metadata map[string]string
}

// String returns the hold on one line, for logs and tests. That of the zero Record is "no hold".
func (r Record) String() string {
	text := fmt.Sprintf("%q held by %q", r.Name, r.Holder)
	switch {
	case r.Name == "" && r.Holder == "" && r.Token == 0:
		return "no hold"
	case r.Holder == "":
		text = fmt.Sprintf("%q held by an unknown holder", r.Name)
	}
	if r.Kept {
		text = fmt.Sprintf("%q kept after its release", r.Name)
	}
	if r.Token > 0 {
		text += fmt.Sprintf(" under token %d", r.Token)
	}
	switch {
	case r.Limit == Shared:
		text += ", shared"
	case r.Limit > 0:
		text += fmt.Sprintf(", one of %d slots", r.Limit)
	}
	if r.Remaining > 0 {
		text += fmt.Sprintf(", %v left", r.Remaining.Round(time.Millisecond))
	}
	if n := len(r.Others); n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	if r.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", r.Waiting)
	}
	return text
}
