// Package lockqueue is the rule by which a store decides which owners hold a name.
//
// A name has a queue of leased entries, in the order in which they were made, which is that of
// their tokens. The holds are the longest prefix of the live entries whose length is within every
// Limit in it. The entries behind them are places. The methods of a [Queue] are the verbs of a
// store. Each of them drops the entries that have ended, makes its change, and returns copies of
// the entries that are holds because of it, except that of the caller, in one step. The store
// notifies their owners when all is written.
//
// A Queue has no clock and no lock. A store passes the time in, and calls the methods one at a
// time. A verb looks at all entries only when one may have ended.
package lockqueue

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Queue has the entries of a name. D is what else the store keeps with an entry. The zero Queue
// has none. A Queue must not be copied.
type Queue[D any] struct {
	buffer []*Entry[D] // the entries from front on; nil before
	front  int
	unused []*Entry[D] // removed ones, so that a hold does not allocate

	holds    int           // how many entries hold
	least    int           // the least Limit of the holds
	earliest time.Duration // no entry ends before it

	owners map[string]*Entry[D] // the entries by owner; nil while there are few
}

// few is the number of entries up to which a search is as fast as an index.
const few = 8

// An Entry is a hold, a place, or a keep after a hold. Times are those of the store's clock.
type Entry[D any] struct {
	Owner  string
	Token  int64 // the first of the block
	Tokens int   // the length of the block, at least 1
	Limit  int   // at least 1
	Since  time.Duration
	Until  time.Duration // the end, exclusive
	Kept   bool          // released and kept; Owner can only set the end of the keep anew
	Data   D
}

// Acquire makes the entry of an owner: Held, Waiting, or none, which is Lost. After an error, which
// is that of the request, there is none, and the tokens are not used.
func (q *Queue[D]) Acquire(
	req *driver.Request, data D, now time.Duration, c *Counter,
) (own driver.Entry, promoted []Entry[D], err error) {
	own.State = driver.Lost
	promoted = q.Settle(now)
	if err := Check(req); err != nil {
		return own, promoted, err
	}
	if q.find(req.Owner) != nil {
		return own, promoted, errOwner
	}
	e := Entry[D]{
		Owner: req.Owner, Tokens: max(req.Tokens, 1), Limit: max(req.Limit, 1),
		Since: now, Until: now + req.TTL, Data: data,
	}
	if e.Token, err = c.next(req.Floor, e.Tokens); err != nil {
		return own, promoted, err
	}
	switch {
	case q.holds == q.Len() && q.fits(e.Limit):
		own.State = driver.Held
	case req.Place > 0:
		own.State = driver.Waiting
		e.Until = now + req.Place
	default:
		return own, promoted, nil
	}
	own.Token = e.Token
	c.Last = e.Token + int64(e.Tokens) - 1
	q.append(&e)
	return own, promoted, nil
}

// Renew prolongs the entry of an owner until ttl from now at least, and returns what it is. A
// request with a token means the entry with that token and nothing else.
func (q *Queue[D]) Renew(
	owner string, token int64, ttl, now time.Duration,
) (driver.Entry, []Entry[D]) {
	promoted := q.settle(now, owner)
	own := q.find(owner)
	if own == nil || own.Kept || token != 0 && token != own.Token {
		return driver.Entry{State: driver.Lost}, promoted
	}
	own.Until = max(own.Until, now+ttl)
	if !q.isHold(own) {
		return driver.Entry{State: driver.Waiting, Token: own.Token}, promoted
	}
	return driver.Entry{State: driver.Held, Token: own.Token}, promoted
}

// Release ends the entry of an owner and reports whether there was one. With keep above zero a hold
// becomes a keep until keep from now; a repetition sets that end anew. A place has nothing to keep:
// it ends, and Release reports false.
func (q *Queue[D]) Release(owner string, keep, now time.Duration) (bool, []Entry[D]) {
	promoted := q.settle(now, owner)
	own := q.find(owner)
	switch {
	case own == nil || own.Kept && keep == 0:
		return false, promoted
	case keep > 0 && q.isHold(own):
		own.Kept, own.Until = true, now+keep
		q.earliest = min(q.earliest, own.Until)
		return true, promoted
	}
	q.remove(own)
	return keep == 0, append(promoted, q.admit("")...)
}

// Break ends the hold or keep that has the token in its block, or all holds and keeps for token 0.
// Places stay. It returns copies of what it ended.
func (q *Queue[D]) Break(token int64, now time.Duration) (ended, promoted []Entry[D]) {
	promoted = q.Settle(now)
	for _, e := range slices.Clone(q.Holds()) {
		if token == 0 || e.Token <= token && token < e.Token+int64(e.Tokens) {
			ended = append(ended, *e)
			q.remove(e)
		}
	}
	return ended, append(promoted, q.admit("")...)
}

// Settle drops the entries that have ended.
func (q *Queue[D]) Settle(now time.Duration) (promoted []Entry[D]) { return q.settle(now, "") }

func (q *Queue[D]) settle(now time.Duration, owner string) []Entry[D] {
	if q.Len() == 0 || now < q.earliest {
		return nil
	}
	q.earliest = math.MaxInt64
	holds := q.holds
	q.holds, q.least = 0, driver.Shared
	live := q.entries()
	kept := live[:0]
	for i, e := range live {
		if e.Until <= now {
			q.forget(e)
			continue
		}
		q.earliest = min(q.earliest, e.Until)
		kept = append(kept, e)
		if i < holds {
			q.holds, q.least = q.holds+1, min(q.least, e.Limit)
		}
	}
	clear(live[len(kept):])
	q.buffer = q.buffer[:q.front+len(kept)]
	q.reset()
	return q.admit(owner)
}

// All yields the entries in order. The ended ones that no verb has found yet are among them. They
// must not be changed.
func (q *Queue[D]) All() iter.Seq[*Entry[D]] {
	return func(yield func(*Entry[D]) bool) {
		for _, e := range q.entries() {
			if !yield(e) {
				return
			}
		}
	}
}

// Holds returns the holds and keeps, oldest first, as of the latest verb. They are valid until the
// next one, and must not be changed.
func (q *Queue[D]) Holds() []*Entry[D] { return q.entries()[:q.holds] }

// Waiting returns how many places there are, as of the latest verb.
func (q *Queue[D]) Waiting() int { return q.Len() - q.holds }

// Len returns how many entries there are, as of the latest verb.
func (q *Queue[D]) Len() int { return len(q.buffer) - q.front }

// Restore adds entries with rising tokens above all others. The Queue keeps them. It has no index
// of them, which is of use to one that lives longer than a verb.
func (q *Queue[D]) Restore(entries []Entry[D]) {
	q.buffer = slices.Grow(q.buffer, len(entries)+1)
	for i := range entries {
		q.add(&entries[i])
	}
}

// append adds a copy of an entry with a token above all others.
func (q *Queue[D]) append(e *Entry[D]) {
	if len(q.buffer) == cap(q.buffer) && q.front > len(q.buffer)/2 {
		n := copy(q.buffer, q.entries())
		clear(q.buffer[n:])
		q.buffer, q.front = q.buffer[:n], 0
	}
	var added *Entry[D]
	if last := len(q.unused) - 1; last >= 0 {
		added, q.unused = q.unused[last], q.unused[:last]
	} else {
		added = new(Entry[D])
	}
	*added = *e
	q.add(added)
	switch {
	case q.owners != nil:
		q.owners[e.Owner] = added
	case q.Len() == few+1:
		q.owners = make(map[string]*Entry[D], 2*few)
		for e := range q.All() {
			q.owners[e.Owner] = e
		}
	}
}

// add makes an entry the last one, and a hold if the rule allows.
func (q *Queue[D]) add(e *Entry[D]) {
	if q.Len() == 0 {
		q.least, q.earliest = driver.Shared, math.MaxInt64
	}
	q.buffer = append(q.buffer, e)
	q.earliest = min(q.earliest, e.Until)
	if q.holds == q.Len()-1 && q.fits(e.Limit) {
		q.holds, q.least = q.holds+1, min(q.least, e.Limit)
	}
}

func (q *Queue[D]) entries() []*Entry[D] { return q.buffer[q.front:] }

// fits reports whether one more entry, with this limit, would be a hold behind the holds.
func (q *Queue[D]) fits(limit int) bool {
	return q.holds == 0 || q.holds < min(q.least, limit)
}

// admit makes the holds as many as the rule allows. An entry that ends never makes them fewer. It
// returns copies of those that are new, except that of an owner.
func (q *Queue[D]) admit(owner string) (promoted []Entry[D]) {
	for _, e := range q.entries()[q.holds:] {
		if !q.fits(e.Limit) {
			break
		}
		q.holds, q.least = q.holds+1, min(q.least, e.Limit)
		if e.Owner != owner {
			promoted = append(promoted, *e)
		}
	}
	return promoted
}

func (q *Queue[D]) isHold(e *Entry[D]) bool {
	return q.holds > 0 && e.Token <= q.entries()[q.holds-1].Token
}

// find returns the entry of an owner, or nil.
func (q *Queue[D]) find(owner string) *Entry[D] {
	if q.owners != nil {
		return q.owners[owner]
	}
	for _, e := range q.entries() {
		if e.Owner == owner {
			return e
		}
	}
	return nil
}

// remove takes an entry out of the queue, and admits none.
func (q *Queue[D]) remove(e *Entry[D]) {
	live := q.entries()
	i, _ := slices.BinarySearchFunc(live, e.Token, func(e *Entry[D], token int64) int {
		return cmp.Compare(e.Token, token)
	})
	limit := e.Limit
	q.forget(e)
	if i < len(live)/2 || len(live) == 1 {
		copy(live[1:i+1], live)
		live[0] = nil
		q.front++
	} else {
		copy(live[i:], live[i+1:])
		live[len(live)-1] = nil
		q.buffer = q.buffer[:len(q.buffer)-1]
	}
	if i < q.holds {
		q.holds--
		if limit == q.least && limit < driver.Shared {
			q.least = driver.Shared
			for _, e := range q.Holds() {
				q.least = min(q.least, e.Limit)
			}
		}
	}
	q.reset()
}

// forget drops what else refers to an entry that is removed.
func (q *Queue[D]) forget(e *Entry[D]) {
	delete(q.owners, e.Owner)
	*e = Entry[D]{}
	if len(q.unused) < few {
		q.unused = append(q.unused, e)
	}
}

// reset frees most of the memory of a queue that is empty.
func (q *Queue[D]) reset() {
	if q.Len() > 0 {
		return
	}
	q.front, q.owners = 0, nil
	if q.buffer = q.buffer[:0]; cap(q.buffer) > 4*few {
		q.buffer = nil
	}
}
