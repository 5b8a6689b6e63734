//go:build unix

package gauge

import (
	"context"
	"errors"
	"sync"
	"time"
)

// latency measures one worker alone.
func (m *meter) latency(r *Report) error {
	m.tell("one worker")
	var acquired, released []time.Duration
	err := m.pairs(m.ctx, name("alone", 1), m.Each, func(acquire, release time.Duration) {
		acquired = append(acquired, acquire)
		released = append(released, release)
	})
	r.Acquire, r.Release = newTimes(acquired), newTimes(released)
	return err
}

// rates measures more and more workers, each with a lock of its own.
func (m *meter) rates(r *Report) error {
	for workers := 1; workers <= m.Most; workers *= 8 {
		m.tell("%d workers, each with a lock of its own", workers)
		rate, err := m.rate(workers)
		if err != nil {
			return err
		}
		r.Rates = append(r.Rates, *rate)
	}
	return nil
}

func (m *meter) rate(workers int) (*Rate, error) {
	took := make([][]time.Duration, workers)
	errs := make([]error, workers)
	var group sync.WaitGroup
	began := time.Now()
	for i := range workers {
		group.Go(func() {
			errs[i] = m.pairs(m.ctx, name("rate", i+1), m.Each, func(acquire, release time.Duration) {
				took[i] = append(took[i], acquire+release)
			})
		})
	}
	group.Wait()
	elapsed := time.Since(began)
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	return &Rate{workers, float64(len(all)) / elapsed.Seconds(), newTimes(all)}, errors.Join(errs...)
}

// pairs acquires and releases a lock for so long.
func (m *meter) pairs(ctx context.Context, name string, long time.Duration, note func(acquire, release time.Duration)) error {
	end := time.Now().Add(long)
	for {
		began := time.Now()
		if began.After(end) {
			return nil
		}
		lock, err := m.client.TryAcquire(ctx, name, nil)
		if err != nil {
			return err
		}
		acquired := time.Now()
		if err := lock.Release(); err != nil {
			return err
		}
		note(acquired.Sub(began), time.Since(acquired))
	}
}
