// Package lockqueue is the rule by which a store decides which owners hold a name.
//
// A name has a queue of leased entries, in the order in which they were made, and those at the
// front hold. An entry that waits is a place; an entry that was admitted is a hold. Admission is in
// order: the first place that may not hold yet stops those behind it. The methods of a [Queue] are
// the verbs of a store. Each of them drops the entries that have expired, makes its change, and
// admits the places that may hold now, all in one step.
//
// A place is a lease. Admission turns it into a hold with the end that the place had, and does not
// move that end: the client of the place may rely on a hold of which it learns late, until the end
// that the store last confirmed.
//
// An owner is admitted at most once. Its only request that makes an entry is the first; a
// repetition is a claim, which recognizes an entry and makes none.
//
// A Queue has no clock and no lock. A store passes the time in, and calls the methods one at a
// time.
//
// A verb looks at each entry only after one has expired, except for Break. Otherwise its cost does
// not depend on how many hold the name.
package oldqueue

import (
	"iter"
	"math"
	"time"
)

// A Queue has the entries of a name. Those that hold come before those that wait. D is what else
// the store keeps with an entry. The zero Queue has none. A Queue must not be copied.
type Queue[D any] struct {
	first, last *Entry[D] // of a linked list
	place       *Entry[D] // the first place
	unused      *Entry[D] // removed ones, linked by next, so that a hold does not allocate

	count    int
	owners   map[string]*Entry[D] // the entries by owner; nil while there are few
	limited  int                  // how many of the holds have a Limit
	earliest time.Duration        // no entry ends before it
}

// few is the number of entries up to which a search is as fast as an index.
const few = 8

// An Entry is a place or a hold, or a keep after a hold. Times are those of the store's clock.
type Entry[D any] struct {
	Owner string

	Limit int32 // of a olddriver.AcquireRequest

	Floor  int64         // the smallest token to be granted
	Token  int64         // of a hold the first of its tokens, of a place 0
	Since  time.Duration // when it was admitted
	Until  time.Duration // the end, exclusive
	Tokens int32         // how many in a row: of a hold those granted, of a place those requested
	Kept   bool          // the hold was released; it can be neither renewed nor released
	Data   D

	prev, next *Entry[D]
}

// A Request is a request to acquire a name.
type Request[D any] struct {
	// Entry has Owner, Limit, Floor, Tokens and Data of the entry to be made.
	Entry Entry[D]

	TTL   time.Duration // how long a hold lasts from now
	Queue time.Duration // how long a place lasts from now; 0 makes no place
	Claim bool          // recognize and prolong the entry of the owner, make none
}

// Acquire returns the entry of the owner: a hold, a place, or nil if the owner has neither. It
// makes one unless the owner has one or the request is a claim. If the owner has no hold because of
// others, [Queue.Oldest] is in the way. The entry that is returned is valid until the next call. An
// error means that the request is invalid, and made no entry.
//
// Acquire and the other verbs also return copies of the entries of other owners that should be
// notified: those that were admitted, which have a Token, and the first place if the hold before it
// became a keep, which has none.
func (q *Queue[D]) Acquire(
	req Request[D], now time.Duration, c *Counter,
) (*Entry[D], []Entry[D], error) {
	q.dropExpired(now)
	own := q.find(req.Entry.Owner)
	made := own == nil // in this call
	switch {
	case made && req.Claim, !made && own.Kept:
		notices, _ := q.admit("", now, c)
		return nil, notices, nil
	case made:
		req.Entry.Token, req.Entry.Kept, req.Entry.Until = 0, false, now+req.TTL
		own = q.Append(&req.Entry)
	case own.Token == 0:
		own.Until = max(own.Until, now+req.Queue)
	}
	notices, err := q.admit(req.Entry.Owner, now, c)
	switch {
	case own.Token != 0:
		own.Until = max(own.Until, now+req.TTL)
		return own, notices, nil
	case !made:
		return own, notices, nil
	case err == nil && req.Queue > 0:
		// A place that can be granted no token would stop those behind it when its turn comes.
		_, err = c.next(own.Floor)
	}
	if err != nil || req.Queue == 0 {
		q.remove(own)
		return nil, notices, err
	}
	q.setEnd(own, now+req.Queue)
	return own, notices, nil
}

// Renew prolongs the entry of an owner until ttl from now at least, and returns it, or nil if the
// owner has none. A request with a token means the hold with that token and nothing else. One
// without means a place, or the hold that it has become.
func (q *Queue[D]) Renew(
	owner string, token int64, ttl, now time.Duration, c *Counter,
) (*Entry[D], []Entry[D]) {
	q.dropExpired(now)
	own := q.find(owner)
	if own != nil && (own.Kept || token != 0 && own.Token != token) {
		own = nil
	}
	if own != nil {
		own.Until = max(own.Until, now+ttl)
	}
	notices, _ := q.admit(owner, now, c)
	return own, notices
}

// Release ends the hold or the place of an owner and reports whether there was one. With keep above
// zero a hold becomes a keep until keep from now; a repetition sets that end again. A place has
// nothing to keep: it ends, and Release reports false.
func (q *Queue[D]) Release(owner string, keep, now time.Duration, c *Counter) (bool, []Entry[D]) {
	q.dropExpired(now)
	own := q.find(owner)
	found := own != nil && (keep > 0 || !own.Kept)
	switch {
	case !found:
	case keep > 0 && own.Token != 0:
		own.Kept = true
		q.setEnd(own, now+keep)
	default:
		found = keep == 0
		q.remove(own)
	}
	notices, _ := q.admit("", now, c)
	if found && keep > 0 && q.place != nil {
		notices = append(notices, *q.place)
	}
	return found, notices
}

// Break ends the holds and keeps of a name, or only the one whose first token is the given one, and
// returns them. Places stay.
func (q *Queue[D]) Break(token int64, now time.Duration, c *Counter) (ended, notices []Entry[D]) {
	q.dropExpired(now)
	for e := range q.All() {
		if e.Token != 0 && (token == 0 || e.Token == token) {
			ended = append(ended, *e)
			q.remove(e)
		}
	}
	notices, _ = q.admit("", now, c)
	return ended, notices
}

// Settle drops the entries that have expired and admits the places that may hold now.
func (q *Queue[D]) Settle(now time.Duration, c *Counter) []Entry[D] {
	q.dropExpired(now)
	notices, _ := q.admit("", now, c)
	return notices
}

// First returns the first place, nil if there is none.
func (q *Queue[D]) First() *Entry[D] { return q.place }

// Oldest returns the oldest hold or keep, nil if there is none.
func (q *Queue[D]) Oldest() *Entry[D] {
	if q.first == q.place {
		return nil
	}
	return q.first
}

// All yields the entries in order, expired ones, too. One that was yielded may be removed.
func (q *Queue[D]) All() iter.Seq[*Entry[D]] {
	return func(yield func(*Entry[D]) bool) {
		for e := q.first; e != nil; {
			next := e.next
			if !yield(e) {
				return
			}
			e = next
		}
	}
}

// Append appends a copy of an entry of another owner, and returns it. Only places may follow a
// place. Stores call it only for a Queue that they restore.
func (q *Queue[D]) Append(entry *Entry[D]) *Entry[D] {
	e := q.unused
	if e == nil {
		e = new(Entry[D])
	} else {
		q.unused = e.next
	}
	*e = *entry
	e.prev, e.next = q.last, nil
	if q.last == nil {
		q.first = e
	} else {
		q.last.next = e
	}
	q.last = e
	switch {
	case e.Token != 0:
		q.limited += e.slots()
	case q.place == nil:
		q.place = e
	}
	q.count++
	switch {
	case q.owners != nil:
		q.owners[e.Owner] = e
	case q.count > few:
		q.owners = make(map[string]*Entry[D])
		for e := range q.All() {
			q.owners[e.Owner] = e
		}
	}
	q.setEnd(e, e.Until)
	return e
}

func (q *Queue[D]) remove(e *Entry[D]) {
	if e.prev == nil {
		q.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	if q.place == e {
		q.place = e.next
	}
	if e.Token != 0 {
		q.limited -= e.slots()
	}
	delete(q.owners, e.Owner)
	if q.count--; q.count == 0 {
		q.owners = nil
	}
	*e = Entry[D]{next: q.unused}
	q.unused = e
}

// setEnd sets the end of an entry. What only prolongs an entry need not call it.
func (q *Queue[D]) setEnd(e *Entry[D], until time.Duration) {
	e.Until = until
	q.earliest = min(q.earliest, until)
}

func (q *Queue[D]) find(owner string) *Entry[D] {
	if q.owners != nil {
		return q.owners[owner]
	}
	for e := q.first; e != nil; e = e.next {
		if e.Owner == owner {
			return e
		}
	}
	return nil
}

func (q *Queue[D]) dropExpired(now time.Duration) {
	if now < q.earliest {
		return
	}
	q.earliest = math.MaxInt64
	for e := range q.All() {
		if e.Until <= now {
			q.remove(e)
		} else {
			q.earliest = min(q.earliest, e.Until)
		}
	}
}

// slots returns how many slots of a limit a hold takes.
func (e *Entry[D]) slots() int {
	if e.Limit <= 0 {
		return 0
	}
	return 1
}

// admit makes holds of the places that may hold now, and returns copies of them without that of
// owner. The error is that of the place at which it stopped, if that can be granted no token. A
// hold that is exclusive is the only one, and so the first.
func (q *Queue[D]) admit(owner string, now time.Duration, c *Counter) (admitted []Entry[D], err error) {
	for e := q.place; e != nil; e = q.place {
		excluded := q.first.Limit == 0 || e.Limit == 0 || e.Limit > 0 && q.limited >= int(e.Limit)
		if e != q.first && excluded {
			return admitted, nil
		}
		if err := c.grant(e.Floor, &e.Token, &e.Tokens); err != nil {
			return admitted, err
		}
		e.Since = now
		q.place, q.limited = e.next, q.limited+e.slots()
		if e.Owner != owner {
			admitted = append(admitted, *e)
		}
	}
	return admitted, nil
}
