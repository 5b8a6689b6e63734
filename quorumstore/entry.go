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
// owner until nothing is pending for it, and it is released or its time is over. Store.mu guards
// its fields, except those of its parts.
type entry struct {
	key      [2]string // of Store.entries
	own      bool      // its Acquire went through this Store
	expiry   time.Time // see over
	token    int64     // that a majority has granted, 0 before that is known
	releases int       // how many have begun: with the first, it is Lost
	pending  int       // how many requests
	parts    []part    // by node
}

// A part is what a node may have of an entry. An owner has one Acquire, so that a request which is
// late can end nothing but its own part.
type part struct {
	acquired chan struct{} // closed when the Acquire has ended; nil without one

	// What is known then:
	none    bool // the node has certainly nothing of it
	unknown bool // the Acquire had no answer, and may still arrive
}

// errOwner does not match driver.ErrNotApplied, since the entry may be the one that is requested.
var errOwner = errors.New("the owner has an entry already")

// unknownTime is how long a release of an owner that this Store does not know is sent again.
const unknownTime = time.Minute

// over returns when the last node has dropped an entry that a request prolongs which is sent now.
// The request arrives while it is under way, or its outcome is not known.
func (s *Store) over(ttl time.Duration) time.Time {
	return time.Now().Add(2*s.timeout + ttl + s.guarantees.Grain)
}

// newEntry records an entry of an owner. When there are twice as many as were left the last time,
// it removes those that are over. The caller holds s.mu.
func (s *Store) newEntry(key [2]string, ttl time.Duration) *entry {
	now := time.Now()
	if len(s.entries) >= s.most {
		maps.DeleteFunc(s.entries, func(_ [2]string, e *entry) bool { return e.pending == 0 && now.After(e.expiry) })
		s.most = max(2*len(s.entries), 64)
	}
	e := &entry{key: key, expiry: s.over(ttl), parts: make([]part, len(s.nodes))}
	s.entries[key] = e
	return e
}

// begin counts a request to each node as pending. The caller holds s.mu.
func (s *Store) begin(e *entry) {
	e.pending += len(s.nodes)
	for _, n := range s.nodes {
		n.pending.Add(1)
	}
}

// done ends what begin has begun at a node.
func (s *Store) done(e *entry, n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.pending.Add(-1)
	if e.pending--; e.pending == 0 && e.releases > 0 && s.entries[e.key] == e {
		delete(s.entries, e.key)
	}
}

// beginAcquire records the entry of a new owner, and completes its request. The request goes to
// each node before any Release.
func (s *Store) beginAcquire(req *driver.Request) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]string{req.Name, req.Owner}
	if e := s.entries[key]; e != nil && e.releases == 0 && time.Now().Before(e.expiry) {
		return nil, errOwner
	}
	req.Place, req.Floor = 0, s.floorFor(req.Floor)
	e := s.newEntry(key, req.TTL)
	e.own = true
	for i := range e.parts {
		e.parts[i].acquired = make(chan struct{})
	}
	s.begin(e)
	return e, nil
}

// acquireAt sends the Acquire of an entry to a node.
func (s *Store) acquireAt(ctx context.Context, e *entry, n *node, req driver.Request) (res driver.Result, err error) {
	defer s.done(e, n)
	if n.silent.Load() && n.pending.Load() > silentLimit {
		err = errSilent
	} else {
		res, err = send(s, ctx, n, func(ctx context.Context) (driver.Result, error) { return n.Acquire(ctx, req) })
	}
	p := &e.parts[n.index]
	p.none = err == nil && !res.Granted || driver.IsNotApplied(err)
	p.unknown = err != nil && !p.none
	close(p.acquired)
	return res, err
}

// Release implements [driver.Store]. It goes to every node. It returns true as soon as a majority
// has ended the hold, and false as soon as so many did not have it that no majority did. If a
// majority replied without deciding it, Release returns true: the hold is over, and may have had a
// majority. To keep the name, a majority must have confirmed it. In all other cases it returns an
// error with the replies.
//
// A release that a node does not confirm is sent again in the background, until it is confirmed or
// the TTL of the hold is over.
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
	s.mu.Lock()
	b := s.release(ctx, [2]string{req.Name, req.Owner}, keep)
	s.mu.Unlock()
	ended, without := 0, 0
	for node := range b.count(ctx, s.timeout) {
		switch {
		case b.errs[node] != nil:
		case b.values[node]:
			ended++
		default:
			without++
		}
		if ended >= s.need || without > s.minority() {
			break
		}
	}
	switch {
	case ended >= s.need, req.Keep == 0 && ended+without >= s.need && without <= s.minority():
		return true, nil
	case without > s.minority():
		return false, nil
	}
	return false, b.err("not confirmed")
}

// release ends the entry of an owner at all nodes. From then on it is Lost. The name stays taken
// until keep, if that is not zero. The caller holds s.mu.
func (s *Store) release(ctx context.Context, key [2]string, keep time.Time) *ballot[bool] {
	e := s.entries[key]
	if e == nil {
		e = s.newEntry(key, unknownTime)
	}
	e.releases++
	s.begin(e)
	number := e.releases
	return ask(s, func(n *node) (bool, error) { return s.releaseAt(ctx, e, n, keep, number) })
}

// releaseAt ends the part of an entry at a node, after its Acquire has ended there. A release that
// the node has not confirmed, or that has found nothing where the Acquire may still arrive, it
// sends again in the background, after pauses that grow, until the entry must be over, or another
// release takes over. When the Store is closed, it does so once more.
func (s *Store) releaseAt(ctx context.Context, e *entry, n *node, keep time.Time, number int) (bool, error) {
	p := &e.parts[n.index]
	if p.acquired != nil {
		<-p.acquired
	}
	if p.none {
		s.done(e, n)
		return false, nil
	}
	attempt := func() (bool, error) {
		req := driver.ReleaseRequest{Name: e.key[0], Owner: e.key[1]}
		if left := time.Until(keep); left > 0 {
			req.Keep = max(left, driver.MinTTL)
		}
		return send(s, ctx, n, func(ctx context.Context) (bool, error) { return n.Release(ctx, req) })
	}
	isConfirmed := func(found bool, err error) bool { return err == nil && (found || !p.unknown) }
	found, err := attempt()
	if isConfirmed(found, err) {
		s.done(e, n)
		return found, err
	}
	go func() {
		defer s.done(e, n)
		for pause, closed := s.timeout/2, false; !closed; pause = min(2*pause, 8*s.timeout) {
			select {
			case <-time.After(pause):
			case <-s.closing:
				closed = true
			}
			s.mu.Lock()
			needless := e.releases != number || time.Now().After(e.expiry)
			s.mu.Unlock()
			if needless || isConfirmed(attempt()) {
				return
			}
		}
	}()
	return found, err
}
