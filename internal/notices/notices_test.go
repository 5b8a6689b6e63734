package notices

import (
	"sync/atomic"
	"testing"
	"time"
)

// Every function gets each notice, until it is stopped.
func TestNotify(t *testing.T) {
	var r Registry
	r.Send("", "", 0)
	var first, second []string
	f := func(name, _ string, _ int64) { first = append(first, name) }
	stop := r.Notify(f)
	stopSecond := r.Notify(func(name, _ string, _ int64) { second = append(second, name) })
	r.Send("a", "", 0)
	stop()
	stop()
	r.Send("b", "", 0)
	stopSecond()
	r.Send("c", "", 0)
	if len(first) != 1 || len(second) != 2 {
		t.Errorf("the first function got %q and the second %q, want one and two", first, second)
	}
}

// A function is not called any more when its stop has returned.
func TestStopWaits(t *testing.T) {
	var r Registry
	var running atomic.Bool
	entered := make(chan struct{})
	stop := r.Notify(func(string, string, int64) {
		running.Store(true)
		close(entered)
		time.Sleep(20 * time.Millisecond) // longer than a stop that does not wait
		running.Store(false)
	})
	go r.Send("", "", 0)
	<-entered
	stop()
	if running.Load() {
		t.Error("stop has returned while the function runs")
	}
}
