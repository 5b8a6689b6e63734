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
package lockqueue

import (
	"slices"
	"time"
)

// A Queue has the entries of a name. Those that hold come before those that wait. D is what else
// the store keeps with an entry.
type Queue[D any] []Entry[D]

// An Entry is a place or a hold, or a keep after a hold. Times are those of the store's clock.
type Entry[D any] struct {
	Owner string

	// Limit and Weight are those of a driver.AcquireRequest.
	Limit, Weight int

	Floor  int64         // the smallest token to be granted
	Token  int64         // of a hold the first of its tokens, of a place 0
	Tokens int           // how many in a row: of a hold those granted, of a place those requested
	Since  time.Duration // when it was admitted
	Until  time.Duration // the end, exclusive
	Kept   bool          // the hold was released; it can be neither renewed nor released
	Data   D
}

// A Request is a request to acquire a name.
type Request[D any] struct {
	// Entry has Owner, Limit, Weight, Floor, Tokens and Data of the entry to be made.
	Entry Entry[D]

	TTL   time.Duration // how long a hold lasts from now
	Queue time.Duration // how long a place lasts from now; 0 makes no place
	Claim bool          // recognize and prolong the entry of the owner, make none
}

// Acquire returns the entry of the owner: a hold, a place, or nil if the owner has neither. It
// makes one unless the owner has one or the request is a claim. If the owner has no hold because of
// others, the first entry of the Queue is the oldest hold in the way. The entry that is returned is
// valid until the next call. An error means that the request is invalid, and made no entry.
//
// Acquire and the other verbs also return copies of the entries of other owners that should be
// notified: those that were admitted, which have a Token, and the first place if the hold before it
// became a keep, which has none.
func (q *Queue[D]) Acquire(
	req Request[D], now time.Duration, c *Counter,
) (*Entry[D], []Entry[D], error) {
	q.dropExpired(now)
	i := q.find(req.Entry.Owner)
	made := i < 0 // in this call
	switch {
	case made && req.Claim, !made && (*q)[i].Kept:
		notices, _ := q.admit("", now, c)
		return nil, notices, nil
	case made && (req.Entry.Weight < 0 || req.Entry.Weight > max(req.Entry.Limit, 0)):
		return nil, nil, errWeight
	case made:
		i = len(*q)
		req.Entry.Token, req.Entry.Kept, req.Entry.Until = 0, false, now+req.TTL
		*q = append(*q, req.Entry)
	case (*q)[i].Token == 0:
		(*q)[i].Until = max((*q)[i].Until, now+req.Queue)
	}
	notices, err := q.admit(req.Entry.Owner, now, c)
	own := &(*q)[i]
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
		*q = slices.Delete(*q, i, i+1)
		return nil, notices, err
	}
	own.Until = now + req.Queue
	return own, notices, nil
}

// Renew prolongs the entry of an owner until ttl from now at least, and returns it, or nil if the
// owner has none. A request with a token means the hold with that token and nothing else. One
// without means a place, or the hold that it has become.
func (q *Queue[D]) Renew(
	owner string, token int64, ttl, now time.Duration, c *Counter,
) (*Entry[D], []Entry[D]) {
	q.dropExpired(now)
	i := q.find(owner)
	if i >= 0 && ((*q)[i].Kept || token != 0 && (*q)[i].Token != token) {
		i = -1
	}
	if i >= 0 {
		(*q)[i].Until = max((*q)[i].Until, now+ttl)
	}
	notices, _ := q.admit(owner, now, c)
	if i < 0 {
		return nil, notices
	}
	return &(*q)[i], notices
}

// Release ends the hold or the place of an owner and reports whether there was one. With keep above
// zero a hold becomes a keep until keep from now; a repetition sets that end again. A place has
// nothing to keep: it ends, and Release reports false.
func (q *Queue[D]) Release(owner string, keep, now time.Duration, c *Counter) (bool, []Entry[D]) {
	q.dropExpired(now)
	i := q.find(owner)
	found := i >= 0 && (keep > 0 || !(*q)[i].Kept)
	switch {
	case !found:
	case keep > 0 && (*q)[i].Token != 0:
		(*q)[i].Kept, (*q)[i].Until = true, now+keep
	default:
		found = keep == 0
		*q = slices.Delete(*q, i, i+1)
	}
	notices, _ := q.admit("", now, c)
	if first := q.First(); found && keep > 0 && first != nil {
		notices = append(notices, *first)
	}
	return found, notices
}

// Break ends the holds and keeps of a name, or only the one whose first token is the given one, and
// returns them. Places stay.
func (q *Queue[D]) Break(token int64, now time.Duration, c *Counter) (ended, notices []Entry[D]) {
	q.dropExpired(now)
	*q = slices.DeleteFunc(*q, func(e Entry[D]) bool {
		broken := e.Token != 0 && (token == 0 || e.Token == token)
		if broken {
			ended = append(ended, e)
		}
		return broken
	})
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
func (q Queue[D]) First() *Entry[D] {
	for i := range q {
		if q[i].Token == 0 {
			return &q[i]
		}
	}
	return nil
}

func (q Queue[D]) find(owner string) int {
	for i := range q {
		if q[i].Owner == owner {
			return i
		}
	}
	return -1
}

func (q *Queue[D]) dropExpired(now time.Duration) {
	for i := range *q {
		if (*q)[i].Until <= now { // seldom
			*q = slices.DeleteFunc(*q, func(e Entry[D]) bool { return e.Until <= now })
			return
		}
	}
}

// admit makes holds of the places that may hold now, and returns copies of them without that of
// owner. The error is that of the place at which it stopped, if that can be granted no token.
func (q Queue[D]) admit(owner string, now time.Duration, c *Counter) (admitted []Entry[D], err error) {
	exclusive, weights := false, 0
	for i := range q {
		e := &q[i]
		weight := 0
		if e.Limit > 0 {
			weight = max(e.Weight, 1)
		}
		if e.Token == 0 {
			if i > 0 && (exclusive || e.Limit == 0 || e.Limit > 0 && weights+weight > e.Limit) {
				return admitted, nil
			}
			if err := c.grant(e.Floor, &e.Token, &e.Tokens); err != nil {
				return admitted, err
			}
			e.Since = now
			if e.Owner != owner {
				admitted = append(admitted, *e)
			}
		}
		exclusive = exclusive || e.Limit == 0
		weights += weight
	}
	return admitted, nil
}
