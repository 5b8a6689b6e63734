package holdfast_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// A player is a goroutine of a world. Its next call has a Client, a context, a name, and options
// that tolerate limit holds.
type player struct {
	*world
	*rand.Rand
	ctx    context.Context
	client *atomic.Pointer[holdfast.Client]

	c       *holdfast.Client
	callCtx context.Context
	name    string
	o       *holdfast.Options
	limit   int
}

// upTo returns a random duration from 1 ns to d.
func (p *player) upTo(d time.Duration) time.Duration { return time.Duration(1 + p.Int64N(int64(d))) }

// sleep sleeps up to d, and less if a lock ends.
func (p *player) sleep(d time.Duration, lock context.Context) {
	select {
	case <-time.After(p.upTo(d)):
	case <-lock.Done():
	}
}

// worldVerbs are what a player can do, and how often.
var worldVerbs = []struct {
	weight int
	do     func(p *player)
}{
	{1, func(p *player) { p.check("ReleaseAll", p.c.ReleaseAll()) }},
	{4, (*player).breakLock},
	{8, (*player).acquireAll},
	{8, (*player).do},
	{10, func(p *player) {
		p.o.Wait = 2 * time.Second // two requests
		p.hold(p.c.TryAcquire)
	}},
	{32, func(p *player) { p.hold(p.c.Acquire) }},
}

// play does one thing.
func (p *player) play(t *testing.T) {
	if p.IntN(64) == 0 {
		old := p.client.Swap(p.newClient(t, p.Rand)) // Another player may have done so, too.
		p.check("Close", old.Close())
	}
	p.c, p.name = p.client.Load(), string(rune('a'+p.IntN(len(p.names))))
	p.o, p.limit = p.options()
	var cancel context.CancelFunc
	p.callCtx, cancel = context.WithTimeout(p.ctx, p.upTo(40*time.Second))
	defer cancel()
	if p.IntN(2) == 0 {
		p.callCtx = p.ctx
	}
	chance := p.IntN(63)
	for _, verb := range worldVerbs {
		if chance -= verb.weight; chance < 0 {
			verb.do(p)
			break
		}
	}
	p.sleep(2*time.Second, p.ctx)
}

// options returns random options, and how many holds they tolerate.
func (p *player) options() (o *holdfast.Options, limit int) {
	o, limit = &holdfast.Options{NoRenew: p.IntN(6) == 0, Detached: p.IntN(4) == 0}, 1
	o.TTL = worldTTL / time.Duration(1+p.IntN(8))
	limits := p.store.Guarantees().Limits
	switch kind := p.IntN(10); {
	case kind < 2 && limits:
		o.Shared, limit = true, driver.Shared
	case kind < 4 && limits:
		limit = 2 + p.IntN(2)
		o.Limit = limit
	case kind == 4:
		o.Reentrant = true
	case kind == 5:
		o.MaxHold = p.upTo(20) * 100 * ms
	case kind < 8:
		o = &holdfast.Options{TTL: worldTTL} // It can be passed on.
	}
	switch p.IntN(4) {
	case 0:
		o.Wait = p.upTo(10 * time.Second)
	case 1:
		o.MaxAttempts = 1 + p.IntN(4)
	}
	return o, limit
}

// breakLock breaks at the store itself, in the step in which it is noted. A break by a quorum takes
// a moment, which no hold can be compared with.
func (p *player) breakLock() {
	if !p.store.Guarantees().Queue {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	held, _ := p.store.Lookup(p.ctx, p.name)
	if len(held) > 0 {
		records, _ := p.store.Break(p.ctx, p.name, held[0].Token*int64(p.IntN(2)))
		for _, rec := range records {
			p.names[p.name].broken[rec.Token] = time.Now()
		}
	}
}

func (p *player) acquireAll() {
	p.o.NoRenew = false
	set, err := p.c.AcquireAll(p.callCtx, []string{"c", "a", "b"}[p.IntN(3):], p.o)
	if p.check("AcquireAll", err); err != nil {
		return
	}
	for name, token := range set.Tokens() {
		p.begin(name, worldHold{token, p.limit, func() bool { return set.Err() == nil }})
	}
	p.sleep(2*time.Second, set.Context())
	p.check("Release of a set", set.Release())
}

func (p *player) do() {
	p.check("Do", p.c.Do(p.callCtx, p.name, p.o, func(ctx context.Context) error {
		lock := holdfast.FromContext(ctx)
		p.use(lock)
		p.end(lock)
		return nil
	}))
}

// hold acquires a lock, holds it for a while, and gives it up in one of the ways there are.
func (p *player) hold(acquire func(context.Context, string, *holdfast.Options) (*holdfast.Lock, error)) {
	n, began := p.names[p.name], time.Now()
	p.mu.Lock()
	n.waiting++
	p.mu.Unlock()
	lock, err := acquire(p.callCtx, p.name, p.o)
	p.mu.Lock()
	n.waiting, n.busy = n.waiting-1, time.Now()
	p.mu.Unlock()
	p.check("Acquire", err)
	if took := time.Since(began); p.o.Wait > 0 && took > p.o.Wait+time.Second {
		p.violate("a Wait of %v took %v", p.o.Wait, took)
	}
	if err != nil {
		return
	}
	p.use(lock)
	defer p.end(lock)
	switch way := p.IntN(10); {
	case way == 0 && p.o.NoRenew && !p.o.Reentrant: // It expires.
		return
	case way < 3:
		d := max(p.upTo(worldTTL), driver.MinTTL)
		end := time.Now().Add(d)
		err := lock.ReleaseKeep(d)
		if p.check("ReleaseKeep", err); err == nil {
			isKept := func() bool { return time.Now().Before(end) }
			p.begin(p.name, worldHold{lock.Token(), p.limit, isKept})
		}
	case way < 6 && p.o.Detached:
		ticket, err := lock.HandOver()
		if p.check("HandOver", err); err != nil {
			break
		}
		p.sleep(time.Second, p.ctx)
		adopted, err := p.clients[p.IntN(len(p.clients))].Load().Adopt(p.ctx, ticket, nil)
		if p.check("Adopt", err); err == nil {
			p.use(adopted)
			p.check("Release after Adopt", adopted.Release())
		}
		return
	}
	p.check("Release", lock.Release())
}

// use relies on a lock for a while, and may extend it.
func (p *player) use(lock *holdfast.Lock) {
	p.begin(lock.Name(), worldHold{lock.Token(), p.limit, func() bool { return lock.Err() == nil }})
	p.sleep(3*time.Second, lock.Context())
	if p.IntN(3) == 0 {
		p.check("Extend", lock.Extend(p.ctx, p.upTo(worldTTL/10/ms)*10*ms))
		p.sleep(3*time.Second, lock.Context())
	}
}
