//go:build unix

package gauge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// detour returns a client whose traffic is counted, nil if that cannot be done
// with this store.
func (m *meter) detour() (*holdfast.Client, error) {
	if m.stores == nil {
		for _, store := range m.Stores {
			detour, proxy, err := faultproxy.Detour(store)
			if err != nil {
				return nil, err
			}
			m.stores = append(m.stores, detour)
			if proxy != nil {
				m.proxy = append(m.proxy, proxy)
			}
		}
	}
	if len(m.proxy) < len(m.stores) {
		return nil, nil
	}
	return m.Open(m.ctx, m.stores, nil)
}

// traffic is what has passed up to now.
func (m *meter) traffic() (up, down faultproxy.Traffic) {
	for _, p := range m.proxy {
		u, d := p.Traffic(faultproxy.Up), p.Traffic(faultproxy.Down)
		up.Bytes, up.Reads = up.Bytes+u.Bytes, up.Reads+u.Reads
		down.Bytes, down.Reads = down.Bytes+d.Bytes, down.Reads+d.Reads
	}
	return up, down
}

// wire measures what one pair sends.
func (m *meter) wire(r *Report) error {
	client, err := m.detour()
	if client == nil {
		return err
	}
	defer client.Close()
	m.tell("traffic of a pair")
	pair := func() error {
		lock, err := client.TryAcquire(m.ctx, name("wire", 1), nil)
		if err != nil {
			return err
		}
		return lock.Release()
	}
	const warmUp, pairs = 10, 500
	for range warmUp {
		if err := pair(); err != nil {
			return err
		}
	}
	upBefore, downBefore := m.traffic()
	for range pairs {
		if err := pair(); err != nil {
			return err
		}
	}
	up, down := m.traffic()
	r.Wire = &Wire{
		Sent:     float64(up.Bytes-upBefore.Bytes) / pairs,
		Received: float64(down.Bytes-downBefore.Bytes) / pairs,
		Requests: float64(up.Reads-upBefore.Reads) / pairs,
	}
	return nil
}

// Numbers of what stands by, and the TTL of what is held meanwhile.
const (
	waiters    = 50
	held       = 1000
	standbyTTL = 6 * time.Second
)

// waiting measures what waiters cost while the lock is held.
func (m *meter) waiting(r *Report) error {
	client, err := m.detour()
	if client == nil {
		return err
	}
	defer client.Close()
	m.tell("%d waiters for one lock", waiters)
	// A lock that is not renewed meanwhile: what is counted is the waiters'.
	lock, err := m.client.TryAcquire(m.ctx, name("waiting", 1), &holdfast.Options{TTL: time.Minute})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(m.ctx)
	var group sync.WaitGroup
	for range waiters {
		group.Go(func() {
			if got, err := client.Acquire(ctx, name("waiting", 1), nil); err == nil {
				_ = got.Release() // it is not wanted
			}
		})
	}
	r.Waiting = m.standby(waiters)
	cancel()
	group.Wait()
	return lock.Release()
}

// holding measures what locks cost that are held and renewed.
func (m *meter) holding(r *Report) error {
	client, err := m.detour()
	if client == nil {
		return err
	}
	defer client.Close()
	m.tell("%d locks held, TTL %v", held, standbyTTL)
	locks := make([]*holdfast.Lock, held)
	errs := make([]error, held)
	var group sync.WaitGroup
	for i := range locks {
		group.Go(func() {
			locks[i], errs[i] = client.TryAcquire(m.ctx, name("held", i), &holdfast.Options{TTL: standbyTTL})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.Holding = m.standby(held)
	for i, lock := range locks {
		group.Go(func() { errs[i] = lock.Release() })
	}
	group.Wait()
	return errors.Join(errs...)
}

// standby counts the traffic of so many, when they have settled.
func (m *meter) standby(count int) *Standby {
	m.sleep(standbyTTL / 6)
	upBefore, downBefore := m.traffic()
	began := time.Now()
	m.sleep(standbyTTL * 2 / 3) // two rounds of renewals
	seconds := time.Since(began).Seconds()
	up, down := m.traffic()
	bytes := up.Bytes - upBefore.Bytes + down.Bytes - downBefore.Bytes
	return &Standby{
		Count:    count,
		Requests: float64(up.Reads-upBefore.Reads) / seconds / float64(count),
		Bytes:    float64(bytes) / seconds / float64(count),
	}
}

func (m *meter) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.ctx.Done():
	}
}
