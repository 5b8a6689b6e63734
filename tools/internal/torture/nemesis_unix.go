//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// maxNemeses is how many nemeses inject faults at the same time. There are fewer if there are few
// processes, so that most processes are at work.
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

// injectProcessFault injects a fault in a process.
func (nem *nemesis) injectProcessFault(f Fault) {
	p := nem.processes[nem.rng.IntN(len(nem.processes))]
	p.mu.Lock()
	defer p.mu.Unlock()
	if nem.ctx.Err() != nil {
		return
	}
	of := Event{Fault: f, Proc: p.number}
	nem.logEvent(Harm, of)
	defer func() { nem.logEvent(Heals, of) }()
	long := nem.randomUpTo(3 * nem.options.TTL)
	switch f {
	case Pause:
		p.pause()
		nem.sleep(long)
		p.resume()
	case Kill:
		p.kill()
		nem.logEvent(Gone, of)
		nem.sleep(nem.randomUpTo(nem.options.TTL / 2))
		if err := nem.startWorker(p, nem.rng.Uint64()); err != nil {
			nem.failRun(err)
		}
	case Partition:
		p.partition(nem.randomDirections())
		nem.sleep(long)
		p.partition(0)
	case LoseReply:
		p.loseReply()
	case Slow:
		p.delayTraffic(nem.randomUpTo(nem.options.TTL / 20))
		nem.sleep(long)
		p.delayTraffic(0)
	}
}

// injectServerFault injects a fault in one server of the store, and gives the server time to
// recover. Only one nemesis does so at a time, because the promises of a store cover one server
// fault at a time.
func (nem *nemesis) injectServerFault(f Fault) {
	var err error
	if f == Outage {
		err = nem.injectOutage()
	} else {
		n := nem.rng.IntN(len(nem.options.Servers))
		if nem.options.Leader != nil && nem.rng.IntN(2) == 0 {
			n = nem.options.Leader()
		}
		of := Event{Fault: f, Server: n + 1}
		nem.logEvent(Harm, of)
		err = nem.harmServer(f, n)
		nem.logEvent(Heals, of)
	}
	if err != nil {
		nem.failRun(fmt.Errorf("%s: %w", f, err))
	}
	nem.sleep(nem.options.Recovery)
}

// injectOutage stops all servers of the store. None of them runs between the last Harm and the
// first Heals.
func (nem *nemesis) injectOutage() (err error) {
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
	return err
}

func (nem *nemesis) harmServer(f Fault, n int) error {
	server := nem.options.Servers[n]
	switch f {
	case ServerPause:
		if err := server.Pause(); err != nil {
			return err
		}
		nem.sleep(nem.randomUpTo(nem.options.TTL))
		return server.Resume()
	case ServerPartition:
		nem.partitionServer(n, nem.randomDirections())
		nem.sleep(nem.randomUpTo(3 * nem.options.TTL))
		nem.partitionServer(n, 0)
		return nil
	case ServerForget:
		return server.Forget()
	}
	return server.Restart()
}

func (nem *nemesis) partitionServer(n, directions int) {
	for _, p := range nem.processes {
		p.partitionServer(n, directions)
	}
}

// randomDirections chooses the directions in which a network is blocked: see process.partition.
func (nem *nemesis) randomDirections() int { return 1 + nem.rng.IntN(3) }

func (nem *nemesis) randomUpTo(d time.Duration) time.Duration {
	return time.Duration(nem.rng.Int64N(int64(max(d, 1)))) + 1
}

func (nem *nemesis) sleep(d time.Duration) { _ = retry.Sleep(nem.ctx, d) }
