package quorumstore

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An entry is what this Store knows of an owner of a name. It exists from the first request of the
// owner until nothing is pending for it, and it is released or its time is over. Store.mu guards
// its fields, except those of its parts.
type entry struct {
	key     [2]string // of Store.entries
	own     bool      // its Acquire went through this Store
	expiry  time.Time // see endAfter
	token   int64     // that a majority has granted, 0 before that is known
	state   entryState
	keep    time.Time // until when the last release keeps the name
	pending int       // how many acquisitions and releases
	parts   []part    // by node
}

// An entryState is what is to become of an entry. Once its release has begun it is Lost for a
// renewal.
type entryState uint8

const (
	live     entryState = iota
	released            // by its owner
	lost                // found lost, or undone: the owner's Release reports none, whatever nodes still have
)

// A part is what a node may have of an entry. An owner has one Acquire, so that a request which is
// late can end nothing but its own part.
type part struct {
	acquiring sync.WaitGroup // for the Acquire, if it went through this Store
	repeats   atomic.Bool    // its release is sent again

	// What is known when the Acquire has ended:
	none    bool // the node has certainly nothing of it
	unknown bool // the Acquire had no answer, and may still arrive
}

// endAfter returns the time by which every node has dropped an entry that a request sent now makes
// or prolongs, if the request arrives within twice the Timeout.
func (s *Store) endAfter(ttl time.Duration) time.Time {
	return time.Now().Add(2*s.timeout + ttl + s.guarantees.Grain)
}

// entryOf returns the entry of an owner, a new one if there is none. When there are twice as many
// as were left the last time, it removes those that have ended. The caller holds s.mu.
func (s *Store) entryOf(key [2]string, ttl time.Duration) *entry {
	e := s.entries[key]
	if e != nil {
		return e
	}
	if now := time.Now(); len(s.entries) >= s.most {
		maps.DeleteFunc(s.entries, func(_ [2]string, e *entry) bool { return e.pending == 0 && now.After(e.expiry) })
		s.most = max(2*len(s.entries), 64)
	}
	e = &entry{key: key, expiry: s.endAfter(ttl), parts: make([]part, len(s.nodes))}
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
	if e.pending--; e.pending == 0 && e.state != live && s.entries[e.key] == e {
		delete(s.entries, e.key)
	}
}

// Release implements [driver.Store]. It returns true as soon as a majority has ended the hold, and
// false as soon as so many did not have it that no majority did. If a majority replied without
// deciding it, Release returns true: the hold has ended, and may have had a majority. To keep the
// name, a majority must have confirmed it. Otherwise it returns an error with the replies. A
// release that a node does not confirm is sent again in the background.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	if req.Keep > 0 && !s.guarantees.Keep {
		return false, fmt.Errorf("%w: a node cannot keep a name", driver.ErrUnsupported)
	}
	s.mu.Lock()
	e := s.entryOf([2]string{req.Name, req.Owner}, time.Minute) // For so long the release of an unknown owner is sent again.
	was := e.state
	b := s.release(ctx, e, req.Keep, released)
	s.mu.Unlock()
	ended, without := 0, 0
	for range b.await(ctx, s.timeout) {
		ended, without = b.tally(func(ended bool) bool { return ended })
		if ended >= s.need || without > s.minority() {
			break
		}
	}
	switch {
	case ended >= s.need, req.Keep == 0 && ended+without >= s.need && without <= s.minority():
		return was != lost, nil
	case without > s.minority():
		return false, nil
	}
	return false, b.err("not confirmed")
}

// release ends an entry at all nodes. A lost one stays lost, and leaves no keep. The caller holds
// s.mu.
func (s *Store) release(ctx context.Context, e *entry, keep time.Duration, to entryState) *ballot[bool] {
	e.state, e.keep = max(e.state, to), time.Time{}
	if keep > 0 && e.state != lost {
		e.keep = time.Now().Add(keep)
	}
	s.begin(e)
	return ask(s, ctx, func(ctx context.Context, n *node) (bool, error) { return s.releaseAt(ctx, e, n) })
}

// releaseAt ends the part of an entry at a node, after its Acquire has ended there. A release that
// the node has not confirmed, or that has found nothing where the Acquire may still arrive, is sent
// again in the background, after pauses that grow, until the entry must have ended. When the Store
// is closed, that is done once more.
func (s *Store) releaseAt(ctx context.Context, e *entry, n *node) (bool, error) {
	p := &e.parts[n.index]
	if p.acquiring.Wait(); p.none {
		s.done(e, n)
		return false, nil
	}
	found, err := false, ctx.Err() // It may have waited for long.
	if err == nil {
		found, err = s.sendRelease(ctx, e, n)
	}
	if p.confirms(found, err) || n.pending.Load() > pendingLimit || p.repeats.Swap(true) {
		s.done(e, n)
		return found, err
	}
	go func() {
		defer s.done(e, n)
		for pause, last := s.timeout/2, false; !last; pause = min(2*pause, 8*s.timeout) {
			select {
			case <-time.After(pause):
				s.mu.Lock()
				last = time.Now().After(e.expiry)
				s.mu.Unlock()
			case <-s.closing:
				last = true
			}
			ctx, cancel := s.limit(ctx)
			last = p.confirms(s.sendRelease(ctx, e, n)) || last
			cancel()
		}
	}()
	return found, err
}

// confirms reports whether the reply to a release shows that nothing of the entry is left.
func (p *part) confirms(found bool, err error) bool { return err == nil && (found || !p.unknown) }

// sendRelease sends a release to a node. The name stays taken until the same moment, however late
// that is.
func (s *Store) sendRelease(ctx context.Context, e *entry, n *node) (bool, error) {
	began, req := time.Now(), driver.ReleaseRequest{Name: e.key[0], Owner: e.key[1]}
	s.mu.Lock()
	if left := e.keep.Sub(began); left > 0 {
		req.Keep = max(left, driver.MinTTL)
	}
	s.mu.Unlock()
	found, err := n.Release(ctx, req)
	s.noteReply(ctx, n, began, err)
	return found, err
}
