//go:build !linux

package supervise

import "time"

// maxSleep bounds how late a bootTimer can be after the machine was suspended.
const maxSleep = time.Second

// A bootTimer sends on c when an instant has come. It may send without cause, and does so
// often: Go's timers stand still while the machine is suspended.
type bootTimer struct {
	c     <-chan time.Time
	timer *time.Timer
}

func newBootTimer() (*bootTimer, error) {
	timer := time.NewTimer(maxSleep)
	return &bootTimer{c: timer.C, timer: timer}, nil
}

// schedule replaces the instant at which the timer fires. An instant in the past fires at once,
// never does not fire.
func (t *bootTimer) schedule(at instant) {
	if at == never {
		t.timer.Stop()
		return
	}
	t.timer.Reset(min(time.Duration(at-bootNow()), maxSleep))
}

func (t *bootTimer) close() { t.timer.Stop() }
