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
// time.
package lockqueue

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Queue has the entries of a name. D is what else the store keeps with an entry. The zero Queue
// has none. A Queue must not be copied.
type Queue[D any] struct {
	Grain   time.Duration // the step of the clock, by which each entry lasts longer than requested
	entries []*Entry[D]
	holds   int // how many of them hold: the first ones
}

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
	if q.Index(req.Owner) >= 0 {
		return own, promoted, errors.New("the owner has an entry") // the first request was applied
	}
	e := Entry[D]{
		Owner: req.Owner, Tokens: max(req.Tokens, 1), Limit: max(req.Limit, 1),
		Since: now, Until: now + req.TTL + q.Grain, Data: data,
	}
	if e.Token, err = c.next(req.Floor, e.Tokens); err != nil {
		return own, promoted, err
	}
	q.Restore(&e)
	switch {
	case q.holds == q.Len():
		own.State = driver.Held
	case req.Place > 0:
		own.State = driver.Waiting
		e.Until = now + req.Place + q.Grain
	default:
		q.remove(q.Len() - 1)
		return own, promoted, nil
	}
	own.Token = e.Token
	c.Last = e.Token + int64(e.Tokens) - 1
	return own, promoted, nil
}

// Renew prolongs the entry of an owner until ttl from now at least, and returns what it is. A
// request with a token means the entry with that token and nothing else.
func (q *Queue[D]) Renew(
	owner string, token int64, ttl, now time.Duration,
) (driver.Entry, []Entry[D]) {
	promoted := q.settle(now, owner)
	i := q.Index(owner)
	if i < 0 || q.entries[i].Kept || token != 0 && token != q.entries[i].Token {
		return driver.Entry{State: driver.Lost}, promoted
	}
	own := q.entries[i]
	own.Until = max(own.Until, now+ttl+q.Grain)
	if i >= q.holds {
		return driver.Entry{State: driver.Waiting, Token: own.Token}, promoted
	}
	return driver.Entry{State: driver.Held, Token: own.Token}, promoted
}

// Release ends the entry of an owner and reports whether there was one. With keep above zero a hold
// becomes a keep until keep from now; a repetition sets that end anew. A place has nothing to keep:
// it ends, and Release reports false.
func (q *Queue[D]) Release(owner string, keep, now time.Duration) (bool, []Entry[D]) {
	promoted := q.settle(now, owner)
	i := q.Index(owner)
	switch {
	case i < 0 || q.entries[i].Kept && keep == 0:
		return false, promoted
	case keep > 0 && i < q.holds:
		q.entries[i].Kept, q.entries[i].Until = true, now+keep+q.Grain
		return true, promoted
	}
	q.remove(i)
	return keep == 0, append(promoted, q.admit("")...)
}

// Break ends the hold or keep that has the token in its block, or all holds and keeps for token 0.
// Places stay. It returns copies of what it ended.
func (q *Queue[D]) Break(token int64, now time.Duration) (ended, promoted []Entry[D]) {
	promoted = q.Settle(now)
	for i := 0; i < q.holds; {
		if e := q.entries[i]; token == 0 || e.Token <= token && token < e.Token+int64(e.Tokens) {
			ended = append(ended, *e)
			q.remove(i)
		} else {
			i++
		}
	}
	return ended, append(promoted, q.admit("")...)
}

// Settle drops the entries that have ended.
func (q *Queue[D]) Settle(now time.Duration) (promoted []Entry[D]) { return q.settle(now, "") }

func (q *Queue[D]) settle(now time.Duration, owner string) []Entry[D] {
	for _, e := range q.Holds() {
		if e.Until <= now {
			q.holds--
		}
	}
	q.entries = slices.DeleteFunc(q.entries, func(e *Entry[D]) bool { return e.Until <= now })
	return q.admit(owner)
}

// Entries returns the entries in order. The ended ones that no verb has found yet are among them.
// They are valid until the next verb, and must not be changed, apart from their Data.
func (q *Queue[D]) Entries() []*Entry[D] { return q.entries }

// Holds returns the holds and keeps, oldest first, as of the latest verb. They are valid until the
// next one, and must not be changed.
func (q *Queue[D]) Holds() []*Entry[D] { return q.entries[:q.holds] }

// Waiting returns how many places there are, as of the latest verb.
func (q *Queue[D]) Waiting() int { return q.Len() - q.holds }

// Len returns how many entries there are, as of the latest verb.
func (q *Queue[D]) Len() int { return len(q.entries) }

// Restore adds entries with rising tokens above all others. The Queue keeps them.
func (q *Queue[D]) Restore(entries ...*Entry[D]) {
	q.entries = append(q.entries, entries...)
	q.extend()
}

// extend makes the holds as many as the rule allows. An entry that ends never makes them fewer.
func (q *Queue[D]) extend() {
	q.holds = Holds(q.Len(), func(i int) int { return q.entries[i].Limit })
}

// Holds returns how many of n entries with these limits hold, by the rule.
func Holds(n int, limit func(i int) int) int {
	least := driver.Shared
	for i := range n {
		if least = min(least, limit(i)); i >= least {
			return i
		}
	}
	return n
}

// admit extends the holds, and returns copies of those that are new, except that of an owner.
func (q *Queue[D]) admit(owner string) (promoted []Entry[D]) {
	was := q.holds
	q.extend()
	for _, e := range q.entries[was:q.holds] {
		if e.Owner != owner {
			promoted = append(promoted, *e)
		}
	}
	return promoted
}

// Index returns where the entry of an owner is among the entries, or -1.
func (q *Queue[D]) Index(owner string) int {
	return slices.IndexFunc(q.entries, func(e *Entry[D]) bool { return e.Owner == owner })
}

// remove takes an entry out of the queue, and admits none.
func (q *Queue[D]) remove(i int) {
	q.entries = slices.Delete(q.entries, i, i+1)
	if i < q.holds {
		q.holds--
	}
}
