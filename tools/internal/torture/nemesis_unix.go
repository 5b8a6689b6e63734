//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// maxNemeses is how many nemeses inject faults at the same time. There are fewer if there
// are few processes, so that most processes are at work.
const maxNemeses = 3

// A nemesis injects one fault after the other.
type nemesis struct {
	*tortureRun
	ctx context.Context
	rng *rand.Rand
}

// injectFaults injects faults until ctx ends. All faults have ended when it returns.
func (nem *nemesis) injectFaults() {
	for {
		nem.sleep(nem.randomUpTo(nem.options.TTL))
		if nem.ctx.Err() != nil {
			return
		}
		f := nem.faults[nem.rng.IntN(len(nem.faults))]
		switch {
		case !f.isServerFault():
			nem.injectProcessFault(f)
		case nem.serverMu.TryLock(): // else another nemesis has the servers
			nem.injectServerFault(f)
			nem.serverMu.Unlock()
		}
	}
}

// maxPlaceTTL is the greatest TTL of a place in a queue.
const maxPlaceTTL = 5 * time.Second

// victims returns the processes for a fault, locked for the caller. For a fault of waiters they are
// the processes of the first waiters in the longest queue, and otherwise any process. In a queue, a
// process with a fault from another nemesis is skipped.
func (nem *nemesis) victims(f Fault) []*process {
	n := map[Fault]int{PauseFirst: 1, KillFirst: 3}[f]
	if n == 0 {
		p := nem.processes[nem.rng.IntN(len(nem.processes))]
		p.mu.Lock()
		return []*process{p}
	}
	var victims []*process
	for _, proc := range nem.awaitLine(n) {
		if p := nem.processes[proc-1]; len(victims) < n && p.mu.TryLock() {
			victims = append(victims, p)
		}
	}
	return victims
}

// injectProcessFault injects a fault in the processes that victims returns.
func (nem *nemesis) injectProcessFault(f Fault) {
	victims := nem.victims(f)
	for _, p := range victims {
		defer p.mu.Unlock()
	}
	if nem.ctx.Err() != nil || len(victims) == 0 {
		return
	}
	for _, p := range victims {
		of := Event{Fault: f, Proc: p.number}
		nem.logEvent(Harm, of)
		defer func() { nem.logEvent(Heals, of) }()
	}
	p := victims[0]
	long := nem.randomUpTo(3 * nem.options.TTL)
	switch f {
	case Pause, PauseFirst:
		if place := min(nem.options.TTL, maxPlaceTTL); f == PauseFirst {
			long = []time.Duration{place / 2, 2 * place}[nem.rng.IntN(2)]
		}
		p.pause()
		nem.sleep(long)
		p.resume()
	case Kill, KillFirst:
		for _, p := range victims {
			_ = p.cmd.Process.Kill() // it may have ended
		}
		for _, p := range victims {
			<-p.exited
			nem.logEvent(Gone, Event{Fault: f, Proc: p.number})
		}
		nem.sleep(nem.randomUpTo(nem.options.TTL / 2))
		for _, p := range victims {
			if err := nem.startWorker(p, nem.rng.Uint64()); err != nil {
				nem.failRun(err)
			}
		}
	case CutNotices:
		directions := nem.rng.IntN(4)
		p.cutNotices(directions)
		if directions > 0 {
			nem.sleep(long)
			p.cutNotices(0)
		}
	case Partition:
		p.partition(nem.randomDirections())
		nem.sleep(long)
		p.partition(0)
	case LoseReply:
		p.loseReply()
	case Reset:
		p.resetConns()
	case Slow:
		p.delayTraffic(nem.randomUpTo(nem.options.TTL / 20))
		nem.sleep(long)
		p.delayTraffic(0)
	}
}

// injectServerFault injects a fault in one server of the store, and gives the server time
// to recover. Only one nemesis does so at a time, because the promises of a store cover one
// server fault at a time.
func (nem *nemesis) injectServerFault(f Fault) {
	if f == Outage {
		nem.injectOutage()
		nem.sleep(nem.options.Recovery)
		return
	}
	servers := len(nem.options.Servers)
	first, harmed := nem.rng.IntN(servers), 1
	if nem.options.Leader != nil && nem.rng.IntN(2) == 0 {
		first = nem.options.Leader()
	}
	switch f {
	case MajorityPause, MajorityRestart:
		harmed = servers/2 + 1
	case NoSpace:
		harmed = servers
	}
	line := 0
	if f == ServerRestart || f.forgets() {
		line = len(nem.awaitLine(fullLine))
	}
	logAll := func(step Step) {
		for i := range harmed {
			nem.logEvent(step, Event{Fault: f, Server: (first+i)%servers + 1, Line: line})
		}
	}
	logAll(Harm)
	err := nem.applyServerFault(f, first, harmed)
	logAll(Heals)
	if err != nil {
		nem.failRun(fmt.Errorf("%s: %w", f, err))
	}
	nem.sleep(nem.options.Recovery)
}

// injectOutage stops all servers of the store. None of them runs between the last Harm and
// the first Heals.
func (nem *nemesis) injectOutage() {
	var err error
	for n, server := range nem.options.Servers {
		err = errors.Join(err, server.Pause())
		nem.logEvent(Harm, Event{Fault: Outage, Server: n + 1})
	}
	nem.sleep(2*nem.options.TTL + nem.randomUpTo(2*nem.options.TTL))
	for n := range nem.options.Servers {
		nem.logEvent(Heals, Event{Fault: Outage, Server: n + 1})
	}
	for _, server := range nem.options.Servers {
		err = errors.Join(err, server.Resume())
	}
	if err != nil {
		nem.failRun(fmt.Errorf("%s: %w", Outage, err))
	}
}

// applyServerFault harms servers, counted from the first on.
func (nem *nemesis) applyServerFault(f Fault, first, harmed int) error {
	server := nem.options.Servers[first]
	switch f {
	case MajorityPause, MajorityRestart:
		errs := make([]error, harmed)
		var group sync.WaitGroup
		long := nem.randomUpTo(nem.options.TTL)
		for i := range harmed {
			server := nem.options.Servers[(first+i)%len(nem.options.Servers)]
			group.Go(func() {
				if f == MajorityRestart {
					errs[i] = server.Harm(ServerRestart)
				} else if errs[i] = server.Pause(); errs[i] == nil {
					nem.sleep(long)
					errs[i] = server.Resume()
				}
			})
		}
		group.Wait()
		return errors.Join(errs...)
	case ServerPause:
		if err := server.Pause(); err != nil {
			return err
		}
		nem.sleep(nem.randomUpTo(nem.options.TTL))
		return server.Resume()
	case ServerPartition:
		directions := nem.randomDirections()
		nem.partitionServer(first, directions)
		nem.sleep(nem.randomUpTo(3 * nem.options.TTL))
		nem.partitionServer(first, 0)
		return nil
	}
	return server.Harm(f)
}

func (nem *nemesis) partitionServer(n, directions int) {
	for _, p := range nem.processes {
		p.partitionServer(n, directions)
	}
}

// randomDirections chooses the directions in which a network is blocked: see
// process.partition.
func (nem *nemesis) randomDirections() int { return 1 + nem.rng.IntN(3) }

func (nem *nemesis) randomUpTo(d time.Duration) time.Duration {
	return time.Duration(nem.rng.Int64N(int64(max(d, 1)))) + 1
}

func (nem *nemesis) sleep(d time.Duration) { _ = retry.Sleep(nem.ctx, d) }
