package quorumstore

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Release implements [olddriver.Store]. It goes to every node. It returns true as soon as a majority
// has ended the hold, and false as soon as so many did not have it that no majority did. If a
// majority replied without deciding it, Release returns true: the hold is over, and may have had a
// majority. To keep the name, a majority must have confirmed it. In all other cases the error is an
// [Error].
//
// Releases that a node does not confirm are sent again in the background for a second or two. After
// that the node's part of the hold ends with its TTL: a minority, which keeps no owner out as long
// as the other nodes reply.
func (s *engine) Release(ctx context.Context, req olddriver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	keep := req.Keep > 0
	if keep && !s.guarantees.Keep {
		return false, fmt.Errorf("%w: a node cannot keep a name", driver.ErrUnsupported)
	}
	ended, without := 0, 0
	f := newFanOut[reply](ctx, s, s.timeout)
	f.count = func(_ int, got reply, err error) bool {
		switch {
		case err != nil:
		case got.released:
			ended++
		default:
			without++
		}
		return ended >= s.need || without > len(s.nodes)-s.need
	}
	s.enqueueAll(req.Name, req.Owner, nodeRequest{release: req}, f)
	err := f.wait(ctx)
	switch {
	case ended >= s.need, !keep && ended+without >= s.need && without <= len(s.nodes)-s.need:
		return true, nil
	case without > len(s.nodes)-s.need:
		return false, nil
	}
	return false, s.quorumError("not confirmed", err, f.votes(func(got reply) Vote {
		if got.released {
			return Vote{Answer: "released"}
		}
		return Vote{Answer: "not held"}
	}))
}
