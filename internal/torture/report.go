//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/driver"
)

// A Report is what a run has found out.
type Report struct {
	Store   string        `json:"store"`
	Seed    uint64        `json:"seed"`
	Elapsed time.Duration `json:"elapsed_ns"`

	Attempts  int           `json:"attempts"` // to acquire
	Grants    int           `json:"grants"`
	Processes int           `json:"processes"` // that were started
	Faults    map[Fault]int `json:"faults"`

	// LongestWait is how long a waiter waited at most until it had the lock,
	// behind others, and under what was done to it.
	LongestWait time.Duration `json:"longest_wait_ns"`

	Violations []Violation `json:"violations"`

	// Outside are the faults that were done although the store does not promise
	// to survive them: what Violations there are may be due to them.
	Outside []Fault `json:"outside,omitempty"`

	// Picture is the path of a page that shows the grants, "" if there is none.
	Picture string `json:"picture,omitempty"`

	begin time.Duration
}

// report judges the logs.
func (r *run) report(can driver.Guarantees, clashes []string) (*Report, error) {
	paths := []string{r.path(coordinatorLog)}
	for _, p := range r.processes {
		paths = append(paths, r.path(workerLog(p.number)))
	}
	events, err := readJournals(paths)
	if err != nil {
		return nil, err
	}
	h := readHistory(events)
	c := &court{h: h, ttl: r.o.TTL, bound: waitBound, late: contextSlack, fenced: can.Fencing}
	c.judge()
	for _, clash := range clashes {
		if can.Fencing {
			c.find(kindRegister, clash)
		}
	}
	left, err := r.o.left()
	if err != nil {
		return nil, err
	}
	for _, text := range left {
		c.find(kindLeft, text)
	}
	report := &Report{
		Store: can.Store, Seed: r.o.Seed, Elapsed: h.elapsed,
		Attempts: h.asks, Grants: len(h.holds), Processes: h.begins, Faults: h.faults,
		Violations: append([]Violation{}, c.violations...), Outside: outside(can, h.faults), // [] in JSON, not null
		begin: h.begin,
	}
	for _, w := range h.waits {
		report.LongestWait = max(report.LongestWait, w.got-w.from)
	}
	if can.Fencing && len(report.Violations) > 0 {
		report.Picture, err = draw(h, r.o.Dir)
	}
	return report, err
}

const (
	// waitBound is how long a lock can be free at most while somebody waits for
	// it: the longest pause between two attempts, and what a busy machine adds.
	waitBound = 5 * time.Second

	// contextSlack is how late a context's end may be noticed on a busy machine.
	contextSlack = time.Second
)

// outside are the faults for whose consequences a store does not answer.
func outside(can driver.Guarantees, done map[Fault]int) []Fault {
	var faults []Fault
	if can.Restart == driver.FateForgotten {
		for _, f := range []Fault{ServerRestart, ServerForget} {
			if done[f] > 0 {
				faults = append(faults, f)
			}
		}
	} else if done[ServerForget] > 0 {
		faults = append(faults, ServerForget)
	}
	return faults
}

// draw makes a page with the grants of every name.
func draw(h *history, dir string) (string, error) {
	names := map[string][]*hold{}
	for _, a := range h.holds {
		names[a.name] = append(names[a.name], a)
	}
	path := filepath.Join(dir, "history.html")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		result, info := porcupine.CheckOperationsVerbose(lockMachine, operations(names[name]), modelTime)
		if result == porcupine.Ok {
			continue
		}
		file, err := os.Create(path)
		if err != nil {
			return "", err
		}
		err = porcupine.Visualize(lockMachine, info, file)
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		return path, err
	}
	return "", nil
}

// Failed reports whether a promise was broken that the store makes. Of a store
// that may forget holds only the tokens are left, and what they protect.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Violations, func(v Violation) bool {
		return len(r.Outside) == 0 || v.Kind == kindToken || v.Kind == kindRegister || v.Kind == kindProcess
	})
}

// Write writes the report for people, 80 columns wide.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "store\t%s\n", r.Store)
	fmt.Fprintf(t, "seed\t%d\n", r.Seed)
	fmt.Fprintf(t, "time\t%v\n", r.Elapsed.Round(time.Second))
	fmt.Fprintf(t, "processes\t%d\n", r.Processes)
	fmt.Fprintf(t, "attempts\t%d\n", r.Attempts)
	fmt.Fprintf(t, "grants\t%d\n", r.Grants)
	fmt.Fprintf(t, "faults\t%s\n", r.faults())
	fmt.Fprintf(t, "longest wait\t%v\n", r.LongestWait.Round(time.Millisecond))
	fmt.Fprintf(t, "violations\t%d\n", len(r.Violations))
	_ = t.Flush() // to a buffer
	r.writeViolations(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) faults() string {
	var list []string
	for _, f := range Faults {
		if n := r.Faults[f]; n > 0 {
			list = append(list, fmt.Sprintf("%s %d", f, n))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// shown is how many violations are told in full.
const shown = 3

func (r *Report) writeViolations(b *strings.Builder) {
	for i, v := range shortest(r.Violations) {
		if i == shown {
			fmt.Fprintf(b, "\nand %d more\n", len(r.Violations)-shown)
			break
		}
		fmt.Fprintf(b, "\n%s: %s\n", v.Kind, v.Text)
		for _, e := range v.Events {
			fmt.Fprintf(b, "  %s\n", e.line(r.begin))
		}
	}
	if len(r.Violations) > 0 && len(r.Outside) > 0 {
		fmt.Fprintf(b, "\nThe store does not promise to survive: %v. It was done, and may be the cause.\n", r.Outside)
	}
	if r.Picture != "" {
		fmt.Fprintf(b, "\na picture: %s\n", r.Picture)
	}
}

// shortest puts the violations with the shortest histories first.
func shortest(all []Violation) []Violation {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), cmp.Compare(len(a.Events), len(b.Events)))
	})
	return sorted
}

// rank is how much a violation explains: most with a history.
func (v Violation) rank() int { return min(len(v.Events), 1) }
