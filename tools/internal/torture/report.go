//go:build unix

package torture

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Report is the result of a run.
type Report struct {
	Store   string        `json:"store"`
	Machine string        `json:"machine"`
	Seed    uint64        `json:"seed"`
	Elapsed time.Duration `json:"elapsed_ns"`

	Attempts  int           `json:"attempts"` // to acquire
	Grants    int           `json:"grants"`
	Foreign   int           `json:"foreign,omitempty"`  // grants to clients of another kind
	Tolerant  int           `json:"tolerant,omitempty"` // grants of shared and limited locks
	Together  int           `json:"together,omitempty"` // the most of them that were held at a time
	Processes int           `json:"processes"`          // that were started
	Faults    map[Fault]int `json:"faults"`

	// LongestWait is the longest time that a waiter waited until it had the lock, behind other
	// waiters and under the faults.
	LongestWait time.Duration `json:"longest_wait_ns"`

	// Violations are the promises that were broken.
	Violations []Violation `json:"violations"`

	// Outside are the faults that were injected although the store does not promise to survive
	// them. Seen are their consequences, which are no violations of the store's promises.
	Outside []Fault     `json:"outside,omitempty"`
	Seen    []Violation `json:"seen,omitempty"`

	runStart time.Duration
}

// buildReport checks the logs.
func (r *tortureRun) buildReport(can driver.Guarantees) (*Report, error) {
	paths := []string{r.filePath(coordinatorLog)}
	for _, p := range r.processes {
		paths = append(paths, r.filePath(workerLogName(p.number)))
	}
	h, err := readHistory(paths)
	if err != nil {
		return nil, err
	}
	client, err := r.options.Open(context.Background(), r.options.Stores, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close() // it holds nothing
	leaks, err := findLeaks(client, r.options.lockNames(), r.options.TTL)
	if err != nil {
		return nil, err
	}
	h.markForgettable(func(f Fault) bool { return survives(can, f) })
	c := &checker{
		history: h, ttl: r.options.TTL, maxWait: waitBound + can.Grain, maxContextDelay: contextSlack, fenced: can.Fencing,
		sessions: hasSessions(can),
		outages:  h.outages(len(r.options.Servers), r.options.Recovery),
	}
	c.checkAll()
	for _, text := range leaks {
		c.addViolation(kindLeak, text)
	}
	report := &Report{
		Store: can.Store, Machine: machineInfo(), Seed: r.options.Seed, Elapsed: h.endedAt - h.startedAt,
		Attempts: h.attempts, Grants: len(h.leases) - h.foreignGrants, Foreign: h.foreignGrants,
		Processes: h.processStarts, Faults: h.faultCounts,
		Violations: append([]Violation{}, shortestFirst(c.violations)...), // [] in JSON, not null
		Seen:       shortestFirst(c.outside),
		runStart:   h.startedAt,
	}
	for _, f := range Faults {
		if h.faultCounts[f] > 0 && !survives(can, f) {
			report.Outside = append(report.Outside, f)
		}
	}
	for _, l := range h.leases {
		if l.limit > 1 {
			report.Tolerant, report.Together = report.Tolerant+1, c.mostTogether
		}
	}
	for _, w := range h.waits {
		report.LongestWait = max(report.LongestWait, w.grantedAt-w.requestedAt)
	}
	return report, nil
}

func machineInfo() string {
	return fmt.Sprintf("%s, %s/%s, %d CPUs", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

const (
	// waitBound is how long a lock can be free at most while a waiter waits for it: the longest
	// pause between two attempts, and the delay of a busy machine.
	waitBound = 5 * time.Second

	// contextSlack is how late the end of a context may be noticed on a busy machine.
	contextSlack = time.Second
)

// hasSessions reports whether the end of a connection to a server ends its locks. Their holder is
// notified a moment later. A store without a server outlives nothing (Guarantees.Failover).
func hasSessions(can driver.Guarantees) bool {
	return can.Crash == driver.FateFreed && can.Failover != driver.FateFreed
}

// survives reports whether a store promises that no lock has two holders in spite of a fault. It
// always promises that tokens rise.
func survives(can driver.Guarantees, f Fault) bool {
	switch f {
	case LoseReply:
		return !hasSessions(can)
	case ServerRestart:
		return can.Restart != driver.FateForgotten
	case ServerForget:
		// Data that is kept is kept on disk.
		return can.Restart == driver.FateFreed
	}
	return true
}

// Failed reports whether a promise was broken.
func (r *Report) Failed() bool { return len(r.Violations) > 0 }
