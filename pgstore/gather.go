package pgstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// gatherFrom is how many releases may be under way alone before others gather.
	// With fewer in the way a server has time left, and to wait for others costs
	// more than it saves.
	gatherFrom = 4

	// gatherMax is how many releases go together. Nobody sees what a batch has
	// done before all of it is done.
	gatherMax = 128

	// gatherBound is how long a batch may take, whoever waits for it. Then its
	// outcome is unknown, unless it comes within the grace.
	gatherBound = 3 * time.Second

	// gatherPatience is for how long releases wait for those that are under way,
	// which may be waiting for a locked row, a connection, or a network that hangs.
	// It is longer than a busy server takes, and no more than a distant one's round
	// trip.
	gatherPatience = 10 * time.Millisecond
)

// A gatherer joins releases. The first few go at once, alone, and their callers
// send them. Those that come while these are under way gather, and go together;
// while they are under way the next gather: the more there are, the fewer
// statements, round trips and commits each costs.
type gatherer struct {
	send     func(batch []*leaver) error // notes what became of them
	spawn    func(f func()) bool         // runs f in the background, unless the store is closed
	patience time.Duration

	mu      sync.Mutex
	alone   int // how many are under way alone, but for those that take too long
	waiting []*leaver
	run     uint64 // the number of the goroutine that sends batches, 0 if there is none
	runs    uint64 // how many there were
}

// A leaver is a release that goes together with others.
type leaver struct {
	name, owner string

	done           chan struct{} // closed when the rest is set
	ended, awaited bool
	err            error // nil without ended: it was left as it was
}

func (g *gatherer) init(send func([]*leaver) error, spawn func(func()) bool) {
	g.send, g.spawn, g.patience = send, spawn, gatherPatience
}

// enter returns how a release waits for others; or nil, and what its caller, who
// sends it himself, calls when it is done.
func (g *gatherer) enter(name, owner string) (l *leaver, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.run > 0 || len(g.waiting) > 0 || g.alone >= gatherFrom {
		l = &leaver{name: name, owner: owner, done: make(chan struct{})}
		g.waiting = append(g.waiting, l)
		return l, nil
	}
	g.alone++
	late := time.AfterFunc(g.patience, g.leave)
	return nil, func() {
		if late.Stop() {
			g.leave()
		}
	}
}

// leave has nobody wait any longer for a release that went alone.
func (g *gatherer) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone--
	if g.run == 0 {
		g.begin()
	}
}

// replace lets another goroutine go on in the place of one whose batch takes too
// long.
func (g *gatherer) replace(run uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.run == run {
		g.begin()
	}
}

// begin starts a goroutine for those who wait, if there are any. The caller holds
// g.mu.
func (g *gatherer) begin() {
	g.run = 0
	if len(g.waiting) == 0 {
		return
	}
	g.runs++
	run := g.runs
	if g.spawn(func() { g.carry(run) }) {
		g.run = run
		return
	}
	answer(g.waiting, driver.ErrClosed)
	g.waiting = nil
}

// carry sends batches until nobody waits, or until it has been replaced.
func (g *gatherer) carry(run uint64) {
	late := time.AfterFunc(g.patience, func() { g.replace(run) })
	defer late.Stop()
	for batch := g.take(run); len(batch) > 0; batch = g.take(run) {
		late.Reset(g.patience)
		answer(batch, g.send(batch))
		// Those who have their answer are about to take and release the next
		// lock: to let them run first makes fewer and larger batches.
		runtime.Gosched()
	}
}

// answer tells those who wait for these releases that they can read their
// outcome, or that there is none.
func answer(batch []*leaver, err error) {
	for _, l := range batch {
		l.err = err
		close(l.done)
	}
}

// take returns the next batch, empty if the goroutine is to end.
func (g *gatherer) take(run uint64) []*leaver {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.run != run {
		return nil
	}
	n := min(len(g.waiting), gatherMax)
	if n == 0 {
		g.run = 0
	}
	batch := g.waiting[:n:n]
	g.waiting = slices.Clone(g.waiting[n:])
	return batch
}

// wait returns what became of a release that goes together with others, or an
// error if that is not known. One that has been sent when ctx ends goes on, and
// has a while to end, as every statement has.
func (g *gatherer) wait(ctx context.Context, l *leaver) (ended, awaited bool, err error) {
	select {
	case <-l.done:
		return l.ended, l.awaited, l.err
	case <-ctx.Done():
	}
	if g.withdraw(l) {
		return false, false, notApplied{ctx.Err()}
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-l.done:
		return l.ended, l.awaited, l.err
	case <-timer.C:
		return false, false, fmt.Errorf("no answer from PostgreSQL: %w", ctx.Err())
	}
}

// withdraw takes back a release that has not been sent, and reports whether it
// could.
func (g *gatherer) withdraw(l *leaver) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, l)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}
