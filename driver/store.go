package driver

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Limits of what a store is given and of what it answers. Package holdfast enforces those of a
// request before it calls the store.
const (
	MaxName            = 255  // bytes of a name and of a holder
	MaxMetadata        = 1024 // bytes of all keys and values of the metadata of an entry
	MaxMetadataEntries = 16

	MinTTL = 10 * time.Millisecond // of every TTL, Place and Keep that is not zero
	MaxTTL = 365 * 24 * time.Hour  // the same

	MaxToken  = 1<<53 - 1      // the greatest integer that the numbers of every language represent
	MaxTokens = 64             // of Request.Tokens and Guarantees.Tokens
	MaxLead   = 24 * time.Hour // how far above the clock of a store a Floor may be

	Shared = 1<<31 - 1 // the greatest Limit, that of a reader
)

// Validity returns how long after the sending of a request its sender may rely on an entry that the
// store has confirmed for d. It is shorter than d by the drift of the two clocks, 1 % and 2 ms. A
// Client applies it to every store, and no store does so itself.
func Validity(d time.Duration) time.Duration { return d - d/100 - 2*time.Millisecond }

// A Store keeps locks. The package comment states what applies to all methods.
type Store interface {
	// Acquire makes the entry of a new owner. It reaches the store once for an owner: a second one
	// fails, with an error that does not match ErrNotApplied, and the entry of the first stays as
	// it is. Renew tells what became of one whose reply was lost.
	Acquire(ctx context.Context, req Request) (Result, error)

	// Renew prolongs entries, and reports what each of them is now, in the order of the requests.
	// It never shortens an entry, never makes one, and never revives one whose end has passed, also
	// if no other owner has come. For a zero Entry the error contains the reason. A nil slice means
	// that no entry is known. Those that are known are returned even if the error is not nil.
	Renew(ctx context.Context, reqs []RenewRequest) ([]Entry, error)

	// Release ends the entry of an owner, hold or place, and reports whether there was one. With
	// Keep, the name of a hold stays taken until Keep from now, without an owner. The same Release
	// sent again reports true as long as the name is kept, and sets that end anew; one without Keep
	// reports false, and the name stays kept. For a place with Keep, Release reports false.
	Release(ctx context.Context, req ReleaseRequest) (bool, error)

	// Lookup returns the holds and keeps of a name, oldest first. A store that does not know the
	// holder may describe the session that has the hold in its place.
	Lookup(ctx context.Context, name string) ([]Record, error)

	// List yields the holds and keeps of all names that begin with prefix, those of one name
	// together, oldest first. A name that is held throughout the call is yielded; one that is taken
	// or becomes free meanwhile may be. The listing goes on after an error that concerns one name
	// only, and ends otherwise.
	List(ctx context.Context, prefix string) iter.Seq2[Record, error]

	// Break ends the hold with the token, or that has the token in its block, or the keep after it;
	// for token 0 all holds and keeps of the name. Places stay. It returns what it ended. It
	// compares the token and ends the hold in one atomic step.
	Break(ctx context.Context, name string, token int64) ([]Record, error)

	// Guarantees returns the same value each time, and sends no request to a server.
	Guarantees() Guarantees

	// Close frees what the store itself has opened, and nothing that was passed to it. It does not
	// release holds, except where they cannot outlive the store. Every later call returns
	// ErrClosed. A second Close returns nil.
	Close() error
}

// A Notifier is a Store that notifies the process of its entries, so that waiters and holders need
// few requests. Package holdfast does not rely on a notice: it looks at each entry in time anyway.
type Notifier interface {
	Store

	// Notify registers f beside others. The store calls f when an entry that was made through it
	// may have changed other than by a request of its owner.
	//
	// With a token above zero, the entry with this token has become a hold, until the end that was
	// last confirmed to it. With token 0, the owner should look, by a Renew: its turn may have
	// come, it may be lost, or a connection may have dropped notices. Owner "" means all entries of
	// the name, and name "" all entries of this Store.
	//
	// f does not block. Several goroutines may call it at once, none after stop has returned.
	// A notice may come before the reply to the request that it concerns.
	Notify(f func(name, owner string, token int64)) (stop func())
}

// A Request is a request to acquire a name. Its entry is granted if it is one of the holds. If it
// is not, it waits if it has a Place; otherwise there is no entry.
type Request struct {
	Name, Owner string        // the lock, and the secret of this acquisition
	Holder      string        // the public name of the client
	TTL         time.Duration // how long a hold lasts unless it is renewed

	// Place is how long a place lasts unless it is renewed; 0 means that the entry does not wait. A
	// store without Guarantees.Queue may answer that it does not wait, too.
	Place time.Duration

	// Limit is how many entries of the name there may be for this one to hold, itself and all
	// before it included: 0 or 1 for an exclusive lock, n for a semaphore, Shared for a reader.
	Limit int

	// Tokens is how many consecutive tokens a grant has, so that goroutines of one client can hold
	// the name one after the other; 0 means 1, and Guarantees.Tokens is the most. Only an exclusive
	// request without a Floor has more than 1; any other is ErrInvalid.
	Tokens int

	// Floor is the smallest token to be granted, 0 for any. Only a store of several nodes sets it.
	// A Floor with a Place is ErrInvalid, and so is one more than MaxLead above the store's clock.
	// A store that is no node of such a one answers ErrUnsupported to each.
	Floor int64

	// Detached requests an entry that only Release, Break or its time ends, also where the store
	// ends the entries of a process that is no more. Any process that knows the owner may renew and
	// release it.
	Detached bool

	// Metadata is kept with the entry, for people and tools. Neither the caller nor the store
	// changes the map after the call.
	Metadata map[string]string
}

// A Result is the result of a Request. If it is neither granted nor waiting, there is no entry.
type Result struct {
	Granted bool
	Waiting bool

	// Token is the token of the entry, the first of its block, or 0: see the package comment.
	Token int64

	// Held describes a hold or keep in the way of a request that was not granted, as far as that
	// takes no further round trip. A Remaining shows a waiter when to look again.
	Held Record
}

// A RenewRequest is a request to prolong one entry.
type RenewRequest struct {
	Name, Owner string

	// Token is that of the entry, the first of its block: the request means no other entry. With 0
	// it means whatever entry the owner has.
	Token int64

	TTL time.Duration // how long the entry lasts from now at least
}

// An Entry is what the owner of a RenewRequest has.
type Entry struct {
	State State
	Token int64 // as in Result
}

// A State is what an owner has.
type State uint8

const (
	Unknown State = iota // the store has no answer: the entry may have been prolonged or not
	Lost                 // the owner has no entry, or none with the token of the request
	Waiting              // the owner has a place
	Held                 // the owner has a hold
)

func (s State) String() string {
	return [...]string{"unknown", "lost", "waiting", "held"}[s]
}

// A ReleaseRequest is a request to end the entry of an owner.
type ReleaseRequest struct {
	Name, Owner string
	Keep        time.Duration // how long the name stays taken from now; 0 frees it
}

// A Record describes one hold or keep, for people and tools. It is a picture of the past: by the
// time it is read the name may be free. Unknown fields are zero.
type Record struct {
	Name      string
	Holder    string            // the public name of the client; "" of a keep and of a foreign client
	Token     int64             // the first of the block
	Since     time.Time         // the beginning of the entry by the store's wall clock, for people
	Remaining time.Duration     // the time left at the reply, by the store's clock; at least 1 ns
	Kept      bool              // the hold was released and the name is only kept
	Limit     int               // that of the Request, 0 or 1 for an exclusive hold
	Waiting   int               // how many places the name has; 0 if an answer to a Request has not counted
	Metadata  map[string]string // that of the Request; it must not be changed
}

// String returns the record on one line, for logs and tests. That of the zero Record is "no hold".
func (r Record) String() string {
	text := fmt.Sprintf("%q held by %q", r.Name, r.Holder)
	switch {
	case r.Name == "" && r.Holder == "" && r.Token == 0:
		return "no hold"
	case r.Kept:
		text = fmt.Sprintf("%q kept after its release", r.Name)
	case r.Holder == "":
		text = fmt.Sprintf("%q held by an unknown holder", r.Name)
	}
	if r.Token > 0 {
		text += fmt.Sprintf(" under token %d", r.Token)
	}
	switch {
	case r.Limit == Shared:
		text += ", shared"
	case r.Limit > 1:
		text += fmt.Sprintf(", one of %d slots", r.Limit)
	}
	if r.Remaining > 0 {
		text += fmt.Sprintf(", %v left", r.Remaining.Round(time.Millisecond))
		if !r.Kept {
			text += " unless renewed"
		}
	}
	if r.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", r.Waiting)
	}
	return text
}
