//go:build unix

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// mostImps is how many do harm at the same time; if there are few processes, it
// is fewer, so that most of them are at work.
const mostImps = 3

// An imp does one harm after the other.
type imp struct {
	*run
	ctx  context.Context
	dice *rand.Rand
}

// work does harm until ctx ends; all is healed when it returns.
func (i *imp) work() {
	for {
		i.sleep(i.upTo(i.o.TTL))
		if i.ctx.Err() != nil {
			return
		}
		f := i.faults[i.dice.IntN(len(i.faults))]
		switch {
		case !f.onServer():
			i.harmProcess(f)
		case i.serverMu.TryLock(): // else another imp is at it
			i.harmServer(f)
			i.serverMu.Unlock()
		}
	}
}

// harmProcess harms a process that no other imp harms.
func (i *imp) harmProcess(f Fault) {
	p := i.processes[i.dice.IntN(len(i.processes))]
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.ctx.Err() != nil {
		return
	}
	of := Event{Fault: f, Proc: p.number}
	i.event(Harm, of)
	defer func() { i.event(Heals, of) }()
	long := i.upTo(3 * i.o.TTL)
	switch f {
	case Pause:
		p.stop()
		i.sleep(long)
		p.resume()
	case Kill:
		p.kill()
		i.sleep(i.upTo(i.o.TTL / 2))
		if err := i.start(p, i.dice.Uint64()); err != nil {
			i.broken(err)
		}
	case Partition:
		p.cutOff(i.ways())
		i.sleep(long)
		p.cutOff(0)
	case LoseReply:
		p.loseReply()
	case Reset:
		p.reset()
	case Slow:
		p.delay(i.upTo(i.o.TTL / 20))
		i.sleep(long)
		p.delay(0)
	}
}

// harmServer harms one server of the store, and gives it the time to recover. No
// other imp harms one meanwhile: what a store survives is stated for one at a
// time.
func (i *imp) harmServer(f Fault) {
	n := i.dice.IntN(len(i.o.Servers))
	of := Event{Fault: f, Server: n + 1}
	i.event(Harm, of)
	err := i.harm(f, n)
	i.event(Heals, of)
	if err != nil {
		i.broken(fmt.Errorf("%s: %w", f, err))
	}
	i.sleep(i.o.Recovery)
}

func (i *imp) harm(f Fault, n int) error {
	server := i.o.Servers[n]
	switch f {
	case ServerPause:
		if err := server.Pause(); err != nil {
			return err
		}
		i.sleep(i.upTo(i.o.TTL))
		return server.Resume()
	case ServerPartition:
		ways := i.ways()
		i.cutOffServer(n, ways)
		i.sleep(i.upTo(3 * i.o.TTL))
		i.cutOffServer(n, 0)
		return nil
	}
	return server.Restart(f == ServerForget)
}

func (i *imp) cutOffServer(n, ways int) {
	for _, p := range i.processes {
		p.cutOffServer(n, ways)
	}
}

// ways chooses which ways a network is cut: see process.cutOff.
func (i *imp) ways() int { return 1 + i.dice.IntN(3) }

func (i *imp) upTo(d time.Duration) time.Duration {
	return time.Duration(i.dice.Int64N(int64(max(d, 1)))) + 1
}

func (i *imp) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-i.ctx.Done():
	}
}
