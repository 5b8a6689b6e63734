package quorumstore

import (
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

	// wakeGap is the least time between two wake-ups of a watch: failed
	// attempts of others make signals, too, and must not answer each other.
	wakeGap = 5 * time.Millisecond
)

// Watch implements [driver.Watcher], if a majority of the nodes can. It returns
// when a majority watches; others join in when they can. It wakes when so many
// nodes have signalled that a hold which had a majority may have none: one
// signal alone is mostly an attempt that failed.
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if !s.can.Push {
		return nil, fmt.Errorf("%w: no majority of the nodes wakes waiters", driver.ErrUnsupported)
	}
	watchCtx, cancel := context.WithCancel(ctx)
	w := &watch{s: s, heard: make([]time.Time, len(s.nodes)), wake: make(chan struct{}, 1)}
	started := make(chan answer[struct{}], len(s.nodes))
	for _, n := range s.nodes {
		s.begin(n)
		go func() {
			defer s.done(n)
			w.follow(watchCtx, n, name, started)
		}()
	}
	s.beginCall()
	go func() {
		defer s.doneCall()
		select {
		case <-s.closing:
			cancel()
		case <-watchCtx.Done():
		}
	}()
	if err := w.await(ctx, started); err != nil {
		cancel()
		return nil, err
	}
	return w.wake, nil
}

// A watch joins the watches of the nodes.
type watch struct {
	s    *Store
	wake chan struct{}

	mu    sync.Mutex
	live  int         // nodes that watch
	heard []time.Time // when each node signalled, since the last wake-up
	last  time.Time   // the last wake-up
	due   bool        // one is on its way
}

// follow watches at one node, and reports when it does.
func (w *watch) follow(ctx context.Context, n *node, name string, started chan<- answer[struct{}]) {
	watcher, ok := n.Store.(driver.Watcher)
	var signals <-chan struct{}
	err := driver.ErrUnsupported
	if ok && n.can.Push {
		// That somebody stops watching is not to make the node seem silent.
		signals, err = ask(context.WithoutCancel(ctx), n, func(context.Context) (<-chan struct{}, error) {
			return watcher.Watch(ctx, name)
		})
	}
	if err == nil {
		w.join(n.index)
	}
	started <- answer[struct{}]{node: n.index, err: err}
	if err != nil {
		return
	}
	for {
		select {
		case <-signals:
			w.hear(n.index, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// join notes that a node watches.
func (w *watch) join(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live >= w.s.need {
		w.heard[node] = time.Now() // it may have missed a release since Watch has returned
	}
	w.live++
}

// await returns when a majority watches, or none can be had.
func (w *watch) await(ctx context.Context, started <-chan answer[struct{}]) error {
	s := w.s
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	var cause error
	nodes := make([]*answer[struct{}], len(s.nodes))
	for live, failed := 0, 0; cause == nil && failed <= len(s.nodes)-s.need; {
		select {
		case a := <-started:
			nodes[a.node] = &a
			if a.err != nil {
				failed++
			} else if live++; live == s.need {
				return nil
			}
			continue
		case <-ctx.Done():
			cause = ctx.Err()
		case <-s.closing:
			cause = driver.ErrClosed
		case <-timer.C:
			cause = errors.New("no majority watches")
		}
	}
	return s.fail("it cannot be watched", cause, func(n *node) Vote {
		switch a := nodes[n.index]; {
		case a == nil:
			return Vote{Err: errNoAnswer}
		case a.err != nil:
			return Vote{Err: a.err}
		}
		return Vote{Answer: "watches"}
	})
}

// hear takes note of a node's signal.
func (w *watch) hear(node int, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard[node] = now
	fresh := 0
	for _, at := range w.heard {
		if !at.IsZero() && now.Sub(at) < staleSignal {
			fresh++
		}
	}
	// A hold has a majority. That many of its nodes are watched at least:
	if fresh < w.s.need+w.live-len(w.s.nodes) {
		return
	}
	clear(w.heard)
	if w.due {
		return
	}
	if gap := wakeGap - now.Sub(w.last); !w.last.IsZero() && gap > 0 {
		w.due = true
		time.AfterFunc(gap, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.due = false
			w.send(time.Now())
		})
		return
	}
	w.send(now)
}

func (w *watch) send(now time.Time) {
	w.last = now
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
