package quorumstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An undoing is the giving back of what a failed round was granted.
type undoing struct {
	s         *Store
	left      atomic.Int32  // nodes that granted and have not given it back yet
	confirmed chan struct{} // closed when there are none
}

// undo gives back what a round that failed has left, or may still leave, on the
// nodes. When it returns the releases have their places in the lanes, and
// what was not sent will not be.
func (r *round) undo() *undoing {
	places := r.s.queue(r.c, release, func(node int) bool {
		v := r.votes[node]
		return v.granted || v.cast && v.err != nil && !driver.NotApplied(v.err) || !v.cast && !r.places[node].skip()
	})
	u := &undoing{s: r.s, confirmed: make(chan struct{})}
	u.left.Store(1)
	for i, p := range places {
		if p.errand == nil {
			continue
		}
		granted := r.votes[i].granted
		if granted {
			u.left.Add(1)
		}
		n := r.s.nodes[i]
		r.s.begin(n)
		go func() {
			defer r.s.done(n)
			_, _ = r.s.releaseInTurn(r.s.alive, n, r.c, p, r.places[i].errand, driver.ReleaseRequest{
				Name:  r.req.Name,
				Owner: r.req.Owner,
			})
			if granted {
				u.back()
			}
		}()
	}
	u.back()
	return u
}

func (u *undoing) back() {
	if u.left.Add(-1) == 0 {
		close(u.confirmed)
	}
}

// wait returns when the nodes that granted have confirmed the release, or have
// had their time, or ctx or the Store has ended.
func (u *undoing) wait(ctx context.Context) {
	timer := time.NewTimer(u.s.timeout)
	defer timer.Stop()
	select {
	case <-u.confirmed:
	case <-timer.C:
	case <-ctx.Done():
	case <-u.s.closing:
	}
}
