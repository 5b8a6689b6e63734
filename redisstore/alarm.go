package redisstore

import (
	"context"
	"sync"
	"time"
)

// alarmGrain is how much later than its deadline a shared alarm may go off.
const alarmGrain = 100 * time.Millisecond

// Alarms are channels that are closed when a deadline has passed. Requests whose
// deadlines are about the same share one, for hardly any comes to its deadline:
// a timer for each would cost more than the rest of the waiting.
type alarms struct {
	mu   sync.Mutex
	base time.Time
	over map[int64]chan struct{} // by their time, in grains since base
}

// at returns a channel that is closed between a deadline and alarmGrain later.
func (a *alarms) at(deadline time.Time) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over == nil {
		a.base, a.over = time.Now(), map[int64]chan struct{}{}
	}
	grain := int64((deadline.Sub(a.base) + alarmGrain - 1) / alarmGrain)
	over, ok := a.over[grain]
	if !ok {
		over = make(chan struct{})
		a.over[grain] = over
		time.AfterFunc(time.Until(a.base.Add(time.Duration(grain)*alarmGrain)), func() { a.ring(grain) })
	}
	return over
}

func (a *alarms) ring(grain int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.over[grain])
	delete(a.over, grain)
}

// A limited context has a deadline, at which the client library ends a request,
// and is over at the alarm for it. It is not cancelled with the one that it has
// its values from.
type limited struct {
	context.Context
	deadline time.Time
	over     <-chan struct{}
}

func (l *limited) Deadline() (time.Time, bool) { return l.deadline, true }
func (l *limited) Done() <-chan struct{}       { return l.over }

func (l *limited) Err() error {
	select {
	case <-l.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
