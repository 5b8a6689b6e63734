package quorumstore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// A claim is what is under way for one owner of one name. It exists while
// anything is under way or in doubt.
type claim struct {
	key claimKey

	// The rest is guarded by Store.mu.
	users int
	taken bool          // an Acquire is under way
	free  chan struct{} // closed when it is over; nil if nobody waits
	lanes []lane        // one for each node
}

type claimKey struct{ name, owner string }

// claim returns the claim of an owner, for one user more.
func (s *Store) claim(name, owner string) *claim {
	key := claimKey{name, owner}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[key]
	if c == nil {
		c = &claim{key: key, lanes: make([]lane, len(s.nodes))}
		s.claims[key] = c
	}
	c.users++
	return c
}

// unclaim ends one use of a claim.
func (s *Store) unclaim(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(c)
}

// leave is unclaim for who holds s.mu.
func (s *Store) leave(c *claim) {
	c.users--
	if c.users == 0 {
		delete(s.claims, c.key)
	}
}

// turn waits until no other Acquire of the owner is under way: the clean-up of
// one must not end what another was granted.
func (s *Store) turn(ctx context.Context, c *claim) error {
	for {
		free := s.take(c)
		if free == nil {
			return nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return notApplied{ctx.Err()}
		case <-s.closing:
			return driver.ErrClosed
		}
	}
}

// take begins an Acquire of the owner, and returns nil; or, if one is under way,
// what tells when it is over.
func (s *Store) take(c *claim) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.taken {
		c.taken = true
		return nil
	}
	if c.free == nil {
		c.free = make(chan struct{})
	}
	return c.free
}

// next ends an Acquire of the owner.
func (s *Store) next(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.taken = false
	if c.free != nil {
		close(c.free)
		c.free = nil
	}
}
