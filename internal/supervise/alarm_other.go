//go:build !linux

package supervise

import "time"

// maxNap bounds how late an alarm can be after the machine was suspended.
const maxNap = time.Second

// An alarm says on c that an instant has come. It may ring without cause, and
// does so often: Go's timers stand still while the machine is suspended.
type alarm struct {
	c     <-chan time.Time
	timer *time.Timer
}

func newAlarm() (*alarm, error) {
	timer := time.NewTimer(maxNap)
	return &alarm{c: timer.C, timer: timer}, nil
}

// set replaces the instant at which the alarm rings; one in the past rings at
// once, never not at all.
func (a *alarm) set(at instant) {
	if at == never {
		a.timer.Stop()
		return
	}
	a.timer.Reset(min(time.Duration(at-now()), maxNap))
}

func (a *alarm) close() { a.timer.Stop() }
