//go:build unix

package torture

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The longest queue is in the order of its places, or of the requests where there are none. What is
// over, of another process before, or of another name does not count.
func TestLongestLine(t *testing.T) {
	r := &tortureRun{options: Options{Dir: t.TempDir()}}
	asks := func(worker int, name string) Event { return Event{Step: Asks, Worker: worker, Name: name, Waits: true} }
	got := func(worker int, name string) Event { return Event{Step: Got, Worker: worker, Name: name} }
	place := func(owner string) Event { return Event{Step: Answers, Name: "a", Owner: owner, Queued: true} }
	logs := map[int][]Event{ // of each process; the time is the index
		1: {asks(1, "a"), {}, {}, {}, {}, {}, place("1"), {Step: Answers, Name: "a", Owner: "0", Err: "no"}},
		2: {{}, asks(1, "a"), {}, {}, {}, place("2"), {}, place("2")},
		3: {{}, {}, asks(1, "a"), {}, place("3")},
		4: {asks(1, "a"), place("4"), {Step: Answers, Name: "a", Owner: "4", Token: 7}, got(1, "a"), asks(1, "b")},
		5: {asks(1, "a"), place("5"), {Step: Begins}},
		6: {asks(1, "a"), place("6"), {Step: Answers, Name: "a", Owner: "6"}, {Step: Refused, Worker: 1}},
	}
	for proc := 1; proc <= len(logs); proc++ {
		r.processes = append(r.processes, &process{number: proc})
		l, err := openEventLog(r.filePath(workerLogName(proc)))
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range logs[proc] {
			if e.Step != "" {
				e.At, e.Proc = time.Duration(i+1)*ms, proc
				l.appendEvent(e)
			}
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
	}
	for fair, want := range map[bool][]int{true: {3, 2, 1}, false: {1, 2, 3}} {
		r.fair = fair
		if line := r.longestLine(); !slices.Equal(line, want) {
			t.Errorf("of a store that is fair, %v: %v, want %v", fair, line, want)
		}
	}
}

// The loss of data is survived by a store that frees what it may have forgotten when nobody relies
// on it any more.
func TestSurvives(t *testing.T) {
	for _, f := range []Fault{ServerForget, ServerFlush, ServerFailover} {
		for fate, want := range map[driver.Fate]bool{driver.FateFreed: true, driver.FateForgotten: false, driver.FateKept: false} {
			if survives(driver.Guarantees{Restart: fate}, f) != want {
				t.Errorf("%s, of a store whose locks are %v after a restart: want %v", f, fate, want)
			}
		}
	}
}
