package notices

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Every function gets each notice, until it is stopped.
func TestNotify(t *testing.T) {
	var r Registry
	r.Send(olddriver.Notice{Kind: olddriver.Ask})
	var first, second []string
	f := func(n olddriver.Notice) { first = append(first, n.Name) }
	stop := r.Notify(f)
	stopSecond := r.Notify(func(n olddriver.Notice) { second = append(second, n.Name) })
	r.Send(olddriver.Notice{Kind: olddriver.Ask, Name: "a"})
	stop()
	stop()
	r.Send(olddriver.Notice{Kind: olddriver.Ask, Name: "b"})
	stopSecond()
	r.Send(olddriver.Notice{Kind: olddriver.Ask, Name: "c"})
	if len(first) != 1 || len(second) != 2 {
		t.Errorf("the first function got %q and the second %q, want one and two", first, second)
	}
}

// A function is not called any more when its stop has returned.
func TestStopWaits(t *testing.T) {
	var r Registry
	var running atomic.Bool
	entered := make(chan struct{})
	stop := r.Notify(func(olddriver.Notice) {
		running.Store(true)
		close(entered)
		time.Sleep(20 * time.Millisecond) // longer than a stop that does not wait
		running.Store(false)
	})
	go r.Send(olddriver.Notice{Kind: olddriver.Ask})
	<-entered
	stop()
	if running.Load() {
		t.Error("stop has returned while the function runs")
	}
}
