//go:build unix

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// imps is how many do harm at the same time.
const imps = 3

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
		if f.onServer() {
			i.harmServer(f)
		} else {
			i.harmProcess(f)
		}
		i.done.Add(1)
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
	i.event(Harm, f, p.number)
	defer func() { i.event(Heals, f, p.number) }()
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
		p.hold(1 + i.dice.IntN(3))
		i.sleep(long)
		p.pass()
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

// harmServer harms one server of the store, while no other imp harms one: what
// a store survives is stated for one at a time.
func (i *imp) harmServer(f Fault) {
	i.serverMu.Lock()
	defer i.serverMu.Unlock()
	if i.ctx.Err() != nil {
		return
	}
	server := i.o.Servers[i.dice.IntN(len(i.o.Servers))]
	i.event(Harm, f, storeHarmed)
	var err error
	switch f {
	case ServerPause:
		if err = server.Pause(); err == nil {
			i.sleep(i.upTo(i.o.TTL))
			err = server.Resume()
		}
	case ServerRestart:
		err = server.Restart(false)
	case ServerForget:
		err = server.Restart(true)
	}
	i.event(Heals, f, storeHarmed)
	if err != nil {
		i.broken(fmt.Errorf("%s: %w", f, err))
	}
}

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
