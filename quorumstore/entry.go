package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An entry is what this Store knows of an owner of a name. It exists from the first request of the
// owner until nothing is pending for it, and it is released or its time is over. Store.mu guards its
// fields.
type entry struct {
	key    [2]string // of Store.entries
	expiry time.Time // when the last node has dropped it, if its requests have arrived in time
	token  int64     // that a majority has granted, 0 before that is known
	ended  bool      // a release has begun: it is Lost from then on
	users  int       // what is pending for it
	parts  []part    // by node
}

// A part is what a node may have of an entry. An owner has one Acquire, so that a request which is late
// can end nothing but its own part.
type part struct {
	turn      chan struct{} // has a value while a request is under way: the next one follows its return
	none      bool          // the node has certainly nothing of it
	unknown   bool          // the Acquire has ended without an answer, and may still arrive
	token     int64         // that the node has granted, 0 if that is not known
	releasing int           // how many releases have begun: each takes over from the one before
}

// errOwner does not match driver.ErrNotApplied, since the entry may be the one that is requested.
var errOwner = errors.New("the owner has an entry already")

// unknownTime is how long a release of an owner that this Store does not know is sent again.
const unknownTime = time.Minute

// newEntry records an entry of an owner. When there are twice as many as were left the last time, it
// removes those that are over. The caller holds s.mu.
func (s *Store) newEntry(key [2]string, ttl time.Duration) *entry {
	now := time.Now()
	if len(s.entries) >= s.most {
		maps.DeleteFunc(s.entries, func(_ [2]string, e *entry) bool { return e.users == 0 && now.After(e.expiry) })
		s.most = max(2*len(s.entries), 64)
	}
	e := &entry{key: key, expiry: now.Add(ttl + s.guarantees.Grain), parts: make([]part, len(s.nodes))}
	for i := range e.parts {
		e.parts[i].turn = make(chan struct{}, 1)
	}
	s.entries[key] = e
	return e
}

// use counts what is pending for an entry, and for a node. The caller holds s.mu.
func (s *Store) use(e *entry, n *node, by int) {
	n.addPending(int64(by))
	if e.users += by; e.users == 0 && e.ended && s.entries[e.key] == e {
		delete(s.entries, e.key)
	}
}

// beginAcquire records the entry of a new owner. Its requests have their turns at all nodes, before
// any Release.
func (s *Store) beginAcquire(req *driver.Request) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]string{req.Name, req.Owner}
	if e := s.entries[key]; e != nil && !e.ended && time.Now().Before(e.expiry) {
		return nil, errOwner
	}
	e := s.newEntry(key, req.TTL)
	for i, n := range s.nodes {
		e.parts[i].turn <- struct{}{}
		s.use(e, n, 1)
	}
	return e, nil
}

// acquireAt sends the Acquire of an entry to a node.
func (s *Store) acquireAt(ctx context.Context, e *entry, n *node, req driver.Request) (res driver.Result, err error) {
	if n.isSilent(s.timeout) {
		err = errSilent
	} else {
		res, err = send(s, ctx, n, func(ctx context.Context) (driver.Result, error) { return n.Acquire(ctx, req) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &e.parts[n.index]
	switch {
	case err == nil && res.Granted:
		p.token = res.Token
	case err == nil, driver.IsNotApplied(err):
		p.none = true
	default:
		p.unknown = true
	}
	<-p.turn
	s.use(e, n, -1)
	return res, err
}

// Release implements [driver.Store]. It goes to every node. It returns true as soon as a majority
// has ended the hold, and false as soon as so many did not have it that no majority did. If a
// majority replied without deciding it, Release returns true: the hold is over, and may have had a
// majority. To keep the name, a majority must have confirmed it. In all other cases the error is an
// [Error].
//
// A release that a node does not confirm is sent again in the background, until it is confirmed or the
// TTL of the hold is over.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	var keep time.Time
	if req.Keep > 0 {
		keep = time.Now().Add(req.Keep)
		if !s.guarantees.Keep {
			return false, fmt.Errorf("%w: a node cannot keep a name", driver.ErrUnsupported)
		}
	}
	key := [2]string{req.Name, req.Owner}
	s.mu.Lock()
	e := s.entries[key]
	if e == nil {
		e = s.newEntry(key, unknownTime)
	}
	s.mu.Unlock()
	ended, without := 0, 0
	b := s.release(ctx, e, keep, func(b *ballot[bool], node int) time.Duration {
		switch {
		case b.errs[node] != nil:
		case b.values[node]:
			ended++
		default:
			without++
		}
		if ended >= s.need || without > len(s.nodes)-s.need {
			return noLonger
		}
		return asBefore
	})
	switch {
	case ended >= s.need, req.Keep == 0 && ended+without >= s.need && without <= len(s.nodes)-s.need:
		return true, nil
	case without > len(s.nodes)-s.need:
		return false, nil
	}
	return false, b.err("not confirmed", func(found bool) string { return map[bool]string{true: "released", false: "not held"}[found] })
}

// release ends an entry at all nodes. From then on it is Lost. The name is kept until a time, if that
// is not zero.
func (s *Store) release(
	ctx context.Context, e *entry, keep time.Time, count func(b *ballot[bool], node int) time.Duration,
) *ballot[bool] {
	s.mu.Lock()
	e.ended = true
	release := make([]int, len(s.nodes))
	for i, n := range s.nodes {
		e.parts[i].releasing++
		release[i] = e.parts[i].releasing
		s.use(e, n, 1)
	}
	s.mu.Unlock()
	return ask(s, ctx, s.timeout, func(n *node) (bool, error) {
		found, err, settled := s.releaseAt(ctx, e, n, keep)
		if !settled {
			go s.releaseAgain(ctx, e, n, keep, release[n.index])
		}
		return found, err
	}, count)
}

// releaseAt sends a release of an entry to a node. It is settled if the node has nothing of it any
// more: then nothing is pending.
func (s *Store) releaseAt(ctx context.Context, e *entry, n *node, keep time.Time) (found bool, err error, settled bool) {
	p := &e.parts[n.index]
	p.turn <- struct{}{}
	s.mu.Lock()
	none, unknown := p.none, p.unknown
	s.mu.Unlock()
	req := driver.ReleaseRequest{Name: e.key[0], Owner: e.key[1]}
	if left := time.Until(keep); left > 0 {
		req.Keep = max(left, driver.MinTTL)
	}
	if !none {
		found, err = send(s, ctx, n, func(ctx context.Context) (bool, error) { return n.Release(ctx, req) })
	}
	settled = err == nil && (found || !unknown) || driver.Permanent(err)
	<-p.turn
	if settled {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.use(e, n, -1)
	}
	return found, err, settled
}

// releaseAgain sends a release again that a node has not confirmed, or that has found nothing where an
// Acquire may still arrive, after pauses that grow: until it is settled, the entry must be over, or
// another release has begun. It does so once more when the Store is closed.
func (s *Store) releaseAgain(ctx context.Context, e *entry, n *node, keep time.Time, release int) {
	closed := false
	for pause := s.timeout / 2; ; pause = min(2*pause, 8*s.timeout) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
		}
		s.mu.Lock()
		over := closed || e.parts[n.index].releasing != release || time.Now().After(e.expiry)
		closed = s.closed
		if over {
			s.use(e, n, -1)
		}
		s.mu.Unlock()
		if over {
			return
		}
		if _, _, settled := s.releaseAt(ctx, e, n, keep); settled {
			return
		}
	}
}
