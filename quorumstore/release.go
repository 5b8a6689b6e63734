package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An entry is what this Store knows of an owner of a name, from its Acquire, Release, or confirmed
// renewal on. It is removed some time after it is released or its time is over, when nothing is
// pending for it. Store.mu guards its fields, except those of its parts.
type entry struct {
	key     [2]string // of Store.entries
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
	none      bool           // the node has certainly nothing of it; known when the Acquire has ended
	late      atomic.Bool    // the Acquire has ended without an answer, and may still arrive
	repeats   atomic.Bool    // its release is sent again
}

// endAfter returns the time by which every node has dropped an entry that a request sent now makes
// or prolongs, if the request arrives within twice the Timeout.
func (s *Store) endAfter(ttl time.Duration) time.Time {
	return time.Now().Add(2*s.timeout + ttl + s.guarantees.Grain)
}

// newEntry makes the entry of an owner. When there are twice as many as were left the last time, it
// removes those that have ended. The caller holds s.mu.
func (s *Store) newEntry(key [2]string, ttl time.Duration) *entry {
	if now := time.Now(); len(s.entries) >= s.most {
		maps.DeleteFunc(s.entries, func(_ [2]string, e *entry) bool { return e.pending == 0 && now.After(e.expiry) })
		s.most = max(2*len(s.entries), 64)
	}
	e := &entry{key: key, expiry: s.endAfter(ttl), parts: make([]part, len(s.nodes))}
	s.entries[key] = e
	return e
}

// done ends a request that is pending for an entry.
func (s *Store) done(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.pending--; e.pending == 0 && e.state != live && s.entries[e.key] == e {
		delete(s.entries, e.key)
	}
}

// Release implements [driver.Store]. It returns true as soon as a majority has ended the hold, and
// false as soon as so many did not have it that no majority did. If a majority replied without
// deciding it, Release returns true: the hold has ended, and may have had a majority. To keep the
// name, a majority must have confirmed it. Otherwise it returns an error with the replies. A
// release that a node does not confirm is sent again in the background, for a minute if this Store
// has neither acquired nor renewed the entry.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	if req.Keep > 0 && !s.guarantees.Keep {
		return false, fmt.Errorf("%w: a node cannot keep a name", driver.ErrUnsupported)
	}
	ended, without := 0, 0
	b, was := s.release(ctx, s.timeout, [2]string{req.Name, req.Owner}, req.Keep, released, func(b *ballot[bool], node int) bool {
		if b.values[node] {
			ended++
		} else if b.errs[node] == nil {
			without++
		}
		return ended >= s.need || without > s.minority()
	})
	switch {
	case ended >= s.need, req.Keep == 0 && ended+without >= s.need && without <= s.minority():
		return was != lost, nil
	case without > s.minority():
		return false, nil
	}
	e := b.err("not confirmed")
	if errors.Is(e, driver.ErrNotApplied) {
		e.causes = nil // It is sent again, and may be applied before its caller does that.
	}
	return false, e
}

// release ends the entry of an owner at all nodes, waits for enough replies up to the timeout, and
// returns the state that the entry had. A lost one stays lost, and leaves no keep.
func (s *Store) release(
	ctx context.Context, timeout time.Duration, key [2]string, keep time.Duration, to entryState, count func(*ballot[bool], int) bool,
) (b *ballot[bool], was entryState) {
	s.mu.Lock()
	e := s.entries[key]
	if e == nil {
		e = s.newEntry(key, time.Minute)
	}
	was = e.state
	e.state, e.keep = max(was, to), time.Time{}
	if keep > 0 && e.state != lost {
		e.keep = time.Now().Add(keep)
	}
	e.pending += len(s.nodes)
	s.mu.Unlock()
	return ask(s, ctx, timeout, func(ctx context.Context, n *node) (bool, error) { return s.releaseAt(ctx, e, n) }, count), was
}

// releaseAt ends the part of an entry at a node, after its Acquire has ended there. A release that
// the node has not confirmed, or that has found nothing where the Acquire may still arrive, is sent
// again in the background, after pauses that grow, until the entry must have ended. When the Store
// is closed, that is done once more.
func (s *Store) releaseAt(ctx context.Context, e *entry, n *node) (bool, error) {
	p := &e.parts[n.index]
	if p.acquiring.Wait(); p.none {
		s.done(e)
		return false, nil
	}
	found, err := s.sendRelease(ctx, e, n)
	if p.confirms(found, err) || n.pending.Load() > pendingLimit || p.repeats.Swap(true) {
		s.done(e)
		return found, err
	}
	n.pending.Add(1)
	go func() {
		defer s.done(e)
		defer n.pending.Add(-1)
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

// confirms reports whether nothing of the entry is left after the reply to a release.
func (p *part) confirms(found bool, err error) bool {
	if found {
		p.late.Store(false) // It has arrived.
	}
	return err == nil && !p.late.Load()
}

// sendRelease sends a release to a node. However late it is sent, a keep ends at the same moment.
func (s *Store) sendRelease(ctx context.Context, e *entry, n *node) (bool, error) {
	req := driver.ReleaseRequest{Name: e.key[0], Owner: e.key[1]}
	s.mu.Lock()
	if left := time.Until(e.keep); left > 0 {
		req.Keep = max(left, driver.MinTTL)
	}
	s.mu.Unlock()
	began := time.Now()
	found, err := n.Release(ctx, req)
	s.noteReply(ctx, n, began, err)
	return found, err
}
