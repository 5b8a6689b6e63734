package notices

import (
	"sync/atomic"
	"testing"
	"time"
)

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
