//go:build unix

package torture

import (
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Report is what a run has found out.
type Report struct {
	Store   string        `json:"store"`
	Setup   string        `json:"setup,omitempty"`   // of the servers that were started for it
	Program string        `json:"program,omitempty"` // that was tried out
	Machine string        `json:"machine"`
	Seed    uint64        `json:"seed"`
	Elapsed time.Duration `json:"elapsed_ns"`

	Attempts  int           `json:"attempts"` // to acquire
	Grants    int           `json:"grants"`
	Processes int           `json:"processes"` // that were started
	Faults    map[Fault]int `json:"faults"`

	// LongestWait is how long a waiter waited at most until it had the lock,
	// behind others, and under what was done to it.
	LongestWait time.Duration `json:"longest_wait_ns"`

	// Violations are the promises that were broken.
	Violations []Violation `json:"violations"`

	// Outside are the faults that were done although the store does not promise
	// to survive them, and Seen are their consequences, for which it does not
	// answer.
	Outside []Fault     `json:"outside,omitempty"`
	Seen    []Violation `json:"seen,omitempty"`

	// Picture is the path of a page that shows what led to the first of the
	// Violations, "" if there is none.
	Picture string `json:"picture,omitempty"`

	begin time.Duration
}

// report judges the logs.
func (r *run) report(can driver.Guarantees, clashes []string) (*Report, error) {
	paths := []string{r.path(coordinatorLog)}
	for _, p := range r.processes {
		paths = append(paths, r.path(workerLog(p.number)))
	}
	h, err := readHistory(paths)
	if err != nil {
		return nil, err
	}
	left, err := r.o.left()
	if err != nil {
		return nil, err
	}
	h.forget(func(f Fault) bool { return survives(can, f) })
	c := &court{
		h: h, ttl: r.o.TTL, bound: waitBound, late: contextSlack, fenced: can.Fencing,
		outages: h.outages(len(r.o.Servers), r.o.Recovery),
	}
	c.judge()
	for _, text := range left {
		c.find(kindLeft, text)
	}
	for _, clash := range clashes {
		if can.Fencing {
			c.find(kindRegister, clash)
		}
	}
	report := &Report{
		Store: can.Store, Setup: r.o.Setup, Program: r.o.Program, Machine: machine(), Seed: r.o.Seed, Elapsed: h.end - h.begin,
		Attempts: h.asks, Grants: len(h.holds), Processes: h.begins, Faults: h.faults,
		Violations: append([]Violation{}, shortest(c.violations)...), // [] in JSON, not null
		Seen:       shortest(c.outside),
		begin:      h.begin,
	}
	for _, f := range Faults {
		if h.faults[f] > 0 && !survives(can, f) {
			report.Outside = append(report.Outside, f)
		}
	}
	for _, w := range h.waits {
		report.LongestWait = max(report.LongestWait, w.got-w.from)
	}
	report.Picture, err = h.draw(report.Violations, r.o.Dir)
	return report, err
}

func machine() string {
	return fmt.Sprintf("%s, %s/%s, %d CPUs", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

const (
	// waitBound is how long a lock can be free at most while somebody waits for
	// it: the longest pause between two attempts, and what a busy machine adds.
	waitBound = 5 * time.Second

	// contextSlack is how late a context's end may be noticed on a busy machine.
	contextSlack = time.Second
)

// survives reports whether a store promises that no lock has two holders in
// spite of a fault. That tokens rise, it always promises.
func survives(can driver.Guarantees, f Fault) bool {
	switch f {
	case LoseReply, Reset:
		// Where the end of a connection is the end of its locks, their holder
		// learns of it a moment later.
		return can.Scope != driver.ScopeNetwork || can.HolderCrash != driver.RecoveryAtOnce
	case ServerRestart:
		return can.Restart != driver.FateForgotten
	case ServerForget:
		return can.Restart == driver.FateFreed // what is kept is kept on disk
	}
	return true
}

// Failed reports whether a promise was broken.
func (r *Report) Failed() bool { return len(r.Violations) > 0 }
