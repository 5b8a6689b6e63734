package quorumstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// staleSignal is how long the signal of a node counts towards a wake-up.
	staleSignal = time.Second

	// wakeGap is the least time between two wake-ups of a watch: failed attempts of others make
	// signals, too, and must not trigger each other.
	wakeGap = 5 * time.Millisecond
)

// Watch implements [driver.Watcher], if a majority of the nodes can. It returns when a majority
// watches. The others join when they can, within twice Options.Timeout. It wakes when so many nodes
// have signaled that a hold which had a majority may have none: one signal alone is mostly an
// attempt that failed.
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	if !s.guarantees.Push {
		return nil, fmt.Errorf("%w: no majority of the nodes wakes waiters", driver.ErrUnsupported)
	}
	watchCtx, cancel := context.WithCancel(ctx)
	w := &watch{s: s, signaledAt: make([]time.Time, len(s.nodes)), wake: make(chan struct{}, 1)}
	stop := context.AfterFunc(s.closing, cancel)
	context.AfterFunc(watchCtx, func() { stop() })
	watching, failed := 0, 0
	f := newFanOut[struct{}](ctx, s, s.timeout)
	f.count = func(_ int, _ struct{}, err error) bool {
		if err == nil {
			watching++
		} else {
			failed++
		}
		return watching == s.need || failed > len(s.nodes)-s.need
	}
	f.send(func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, w.watchNode(ctx, watchCtx, n, name)
	})
	err := f.wait(ctx)
	if watching >= s.need {
		return w.wake, nil
	}
	cancel()
	return nil, s.quorumError("it cannot be watched", cmp.Or(err, errors.New("no majority watches")),
		f.votes(func(struct{}) Vote { return Vote{Answer: "watches"} }))
}

// A watch joins the watches of the nodes.
type watch struct {
	s    *Store
	wake chan struct{}

	mu          sync.Mutex
	watching    int         // nodes that watch
	signaledAt  []time.Time // when each node signaled, since the last wake-up
	last        time.Time   // the last wake-up
	wakePending bool        // a wake-up is scheduled
}

// watchNode begins to watch at one node, until watchCtx ends. A node that has not begun when ctx,
// that of the request, ends is given up.
func (w *watch) watchNode(ctx, watchCtx context.Context, n *node, name string) error {
	watcher, ok := n.Store.(driver.Watcher)
	if !ok || !n.guarantees.Push {
		return errNoMethod
	}
	watchCtx, cancel := context.WithCancel(watchCtx)
	goOn := context.AfterFunc(ctx, cancel)
	signals, err := watcher.Watch(watchCtx, name)
	if !goOn() {
		err = cmp.Or(err, ctx.Err())
	}
	if err != nil {
		cancel()
		return err
	}
	w.mu.Lock()
	if w.watching >= w.s.need {
		w.signaledAt[n.index] = time.Now() // It may have missed a release since Watch has returned.
	}
	w.watching++
	w.mu.Unlock()
	go func() {
		for {
			select {
			case <-signals:
				w.onSignal(n.index, time.Now())
			case <-watchCtx.Done():
				return
			}
		}
	}()
	return nil
}

// onSignal records a node's signal.
func (w *watch) onSignal(node int, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signaledAt[node] = now
	fresh := 0
	for _, at := range w.signaledAt {
		if !at.IsZero() && now.Sub(at) < staleSignal {
			fresh++
		}
	}
	// A hold has a majority. At least that many of its nodes are watched:
	if fresh < w.s.need+w.watching-len(w.s.nodes) {
		return
	}
	clear(w.signaledAt)
	if w.wakePending {
		return
	}
	if gap := wakeGap - now.Sub(w.last); !w.last.IsZero() && gap > 0 {
		w.wakePending = true
		time.AfterFunc(gap, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.wakePending = false
			w.wakeWaiter(time.Now())
		})
		return
	}
	w.wakeWaiter(now)
}

func (w *watch) wakeWaiter(now time.Time) {
	w.last = now
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
