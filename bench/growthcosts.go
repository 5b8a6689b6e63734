//go:build unix

package main

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// A costedStep is one thing that costs something: a row of the cost model.
type costedStep struct {
	title   string
	ttl     time.Duration // 0 means an hour: nothing is renewed meanwhile
	clients int           // that the step needs
	memory  bool          // whether what it has done takes up memory in the server

	// measure does the step a number of times, inside of a call of count.
	measure func(t *trial, clients []measure.Locker, count usageCounter) error
}

// A usageCounter measures the cost of a function, which returns how often it has done a step.
type usageCounter func(f func() (times float64, err error)) error

// growthCosts measures each step of the cost model by itself, with its cost to the client and to
// the server.
func growthCosts(store, group string, contender lockers.Contender) scenario {
	sc := scenario{
		name: store + "-growth-costs", group: group, ttl: time.Hour, timeout: time.Minute,
		title: "The cost of each step",
		about: "Requests are what the clients write to their connections: several that go together are one. Bytes are those in " +
			"both directions. Each step is done by itself many times, on names that were used before, by clients that are " +
			"connected.",
		metrics: costMetrics(group, "each"),
	}
	// The titles are those of the table as a whole.
	for i := range sc.metrics {
		sc.metrics[i].Title = [...]string{"requests", commandsOf(group), "bytes", "server CPU", "written ahead"}[i]
	}
	sc.metrics = append(sc.metrics, result.Metric{Key: "memory", Title: "server memory", Unit: result.Bytes, Lower: true})
	sc.metrics[2].Chart = true
	steps := costedSteps()
	for _, step := range steps {
		own := contender
		own.Base, own.Name = contender.Name, step.title
		sc.contenders = append(sc.contenders, own)
	}
	sc.measure = func(t *trial) (sample result.Sample, err error) {
		step := steps[slices.IndexFunc(steps, func(s costedStep) bool { return s.title == t.contender.Name })]
		options := t.options()
		if step.ttl > 0 {
			options.TTL = step.ttl
		}
		var clients []measure.Locker
		defer func() {
			for _, c := range clients {
				err = errors.Join(err, c.Close())
			}
		}()
		for range step.clients {
			client, err := contender.Open(options)
			if err != nil {
				return sample, err
			}
			clients = append(clients, client)
		}
		err = step.measure(t, clients, func(f func() (float64, error)) error {
			serverBefore, err := t.readServer()
			if err != nil {
				return err
			}
			before := measure.ReadUsage()
			times, err := f()
			used := measure.ReadUsage().Sub(before)
			if err != nil {
				return err
			}
			server, err := t.readServer()
			if err != nil {
				return err
			}
			sample.Values = costs(used, server.sub(serverBefore), times)
			// The new pages of PostgreSQL have more room than fewer rows take.
			if step.memory && (t.pg == nil || times >= 1000) {
				sample.Values["memory"] = (server.data - serverBefore.data) / times
			}
			return nil
		})
		return sample, err
	}
	return sc
}

// The titles of the steps: checks of the model refer to them.
const (
	stepFirst    = "acquire a new name"
	stepAcquire  = "acquire"
	stepRenew    = "renew one lock"
	stepRelease  = "release"
	stepHold     = "hold one of 1,000 locks (TTL 3 s), a second"
	stepQueue    = "begin to wait"
	stepWait     = "wait, a second"
	stepHandOver = "hand over"
)

// costedSteps lists the steps.
func costedSteps() []costedStep {
	const names, clients = 1000, 50
	return []costedStep{
		{title: stepFirst, clients: 1, memory: true, measure: func(t *trial, all []measure.Locker, count usageCounter) error {
			if err := pair(t, all[0], "warm-up"); err != nil {
				return err
			}
			var held []measure.Held
			err := count(func() (_ float64, err error) {
				held, err = acquireNames(t, all[0], fmt.Sprint("new/", time.Now().UnixNano()), names)
				return names, err
			})
			return errors.Join(err, releaseAll(t, held))
		}},
		{title: stepAcquire, clients: 1, measure: func(t *trial, all []measure.Locker, count usageCounter) error {
			held, err := acquireNames(t, all[0], "job", names)
			if err = errors.Join(err, releaseAll(t, held)); err != nil {
				return err
			}
			err = count(func() (_ float64, err error) {
				held, err = acquireNames(t, all[0], "job", names)
				return names, err
			})
			return errors.Join(err, releaseAll(t, held))
		}},
		{title: stepRenew, clients: 1, measure: func(t *trial, all []measure.Locker, count usageCounter) error {
			held, err := all[0].Acquire(t.ctx, "job")
			if err != nil {
				return err
			}
			err = count(func() (float64, error) {
				for i := range names {
					if err := held.(measure.Extender).Extend(t.ctx, t.ttl+time.Duration(i)*time.Second); err != nil {
						return 0, err
					}
				}
				return names, nil
			})
			return errors.Join(err, held.Release(t.ctx))
		}},
		{title: stepRelease, clients: 1, measure: func(t *trial, all []measure.Locker, count usageCounter) error {
			held, err := acquireNames(t, all[0], "job", names)
			if err != nil {
				return err
			}
			return count(func() (float64, error) { return names, releaseAll(t, held) })
		}},
		{
			title: stepHold, clients: 1, ttl: 3 * time.Second,
			measure: func(t *trial, all []measure.Locker, count usageCounter) error {
				return measure.HoldMany(t.ctx, all[0], names, measure.OwnNames("job"), func() error {
					return countSeconds(6, names, count)
				})
			},
		},
		{title: stepQueue, clients: 1 + clients, memory: true, measure: func(t *trial, all []measure.Locker, count usageCounter) error {
			return whileWaiting(t, all, func(wait func()) error {
				return count(func() (float64, error) { wait(); return clients, nil })
			}, nil)
		}},
		{title: stepWait, clients: 1 + clients, measure: func(t *trial, all []measure.Locker, count usageCounter) error {
			return whileWaiting(t, all, func(wait func()) error {
				wait()
				return countSeconds(10, clients, count)
			}, nil)
		}},
		{title: stepHandOver, clients: 1 + clients, measure: func(t *trial, all []measure.Locker, count usageCounter) error {
			return whileWaiting(t, all, func(wait func()) error { wait(); return nil },
				func(handOver func() error) error {
					return count(func() (float64, error) { return clients, handOver() })
				})
		}},
	}
}

// countSeconds counts what goes on by itself, for a thing and a second.
func countSeconds(seconds, things float64, count usageCounter) error {
	return count(func() (float64, error) {
		time.Sleep(time.Duration(seconds * float64(time.Second)))
		return seconds * things, nil
	})
}

func pair(t *trial, l measure.Locker, name string) error {
	held, err := l.Acquire(t.ctx, name)
	if err != nil {
		return err
	}
	return held.Release(t.ctx)
}

func acquireNames(t *trial, l measure.Locker, prefix string, n int) (all []measure.Held, err error) {
	name := measure.OwnNames(prefix)
	for i := range n {
		held, err := l.Acquire(t.ctx, name(i))
		if err != nil {
			return all, err
		}
		all = append(all, held)
	}
	return all, nil
}

func releaseAll(t *trial, all []measure.Held) error {
	for _, held := range all {
		if err := held.Release(t.ctx); err != nil {
			return err
		}
	}
	return nil
}

// whileWaiting acquires a name by the first client. begin gets a function that lets the others begin
// to wait, and returns when they have settled. end, which may be nil, gets a function that releases
// the lock, and returns when the last client has had it. Before that, each client waits for another
// name until its place is renewed, so that it is connected and the server has the scripts.
func whileWaiting(
	t *trial, all []measure.Locker, begin func(wait func()) error, end func(handOver func() error) error,
) error {
	err := waitInTurn(t, all, "warm-up", 3*time.Second, func(wait func()) error { wait(); return nil }, nil)
	if err != nil {
		return err
	}
	return waitInTurn(t, all, "job", time.Second, begin, end)
}

func waitInTurn(t *trial, all []measure.Locker, name string, settle time.Duration,
	begin func(wait func()) error, end func(handOver func() error) error,
) error {
	first, err := all[0].Acquire(t.ctx, name)
	if err != nil {
		return err
	}
	waiters := len(all) - 1
	acquired := make(chan error, waiters) // an error of the release is one, too
	last := make(chan measure.Held, 1)
	var count atomic.Int64
	err = begin(func() {
		for _, l := range all[1:] {
			go func() {
				held, err := l.Acquire(t.ctx, name)
				switch {
				case err != nil:
				case count.Add(1) == int64(waiters):
					last <- held
				default:
					err = held.Release(t.ctx)
				}
				acquired <- err
			}()
		}
		time.Sleep(settle)
	})
	if err != nil {
		return err
	}
	handOver := func() error {
		errs := []error{first.Release(t.ctx)}
		for range waiters {
			errs = append(errs, <-acquired)
		}
		return errors.Join(errs...)
	}
	if end == nil {
		err = handOver()
	} else {
		err = end(handOver)
	}
	if err != nil {
		return err
	}
	return (<-last).Release(t.ctx)
}
