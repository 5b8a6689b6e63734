//go:build unix

package measure

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Write writes the report as text, 80 columns wide.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	b.WriteString(strings.Join(r.settingLines(), "\n") + "\n")
	const head = "\tp50\tp99\tp99.9\tmax\tcalls"
	b.WriteString("\nOne worker\n")
	writeTable(&b, head, "acquire\t"+r.Acquire.cells(), "release\t"+r.Release.cells())

	b.WriteString("\nPairs of acquire and release, each worker with a lock of its own\n")
	rows := []string{"workers\tpairs/s\tp50\tp99\tp99.9\tmax\tcalls"}
	for _, rate := range r.Rates {
		rows = append(rows, fmt.Sprintf("%d\t%.0f\t%s", rate.Workers, rate.PerSecond, rate.Times.cells()))
	}
	writeTable(&b, rows...)

	if r.HandOver != nil {
		b.WriteString("\nHand-over from one process to another that waits\n")
		writeTable(&b, head, "hand-over\t"+r.HandOver.cells())
	}
	if c := r.Contention; c != nil {
		fmt.Fprintf(&b, "\n%d processes with %d workers each that want one lock\n", c.Processes, c.Workers)
		writeTable(&b, head, "wait\t"+c.Wait.cells())
		fmt.Fprintf(&b, "  %.0f hand-overs/s; Jain fairness (1 is best): processes %.2f, workers %.2f\n",
			c.PerSecond, c.Jain, c.JainWorkers)
	}
	if r.Wire == nil {
		b.WriteString("\nThere is no network between here and the store that could be watched.\n")
	} else {
		fmt.Fprintf(&b, "\nOn the network\n  a pair: %.1f requests, %.0f bytes sent, %.0f received\n",
			r.Wire.Requests, r.Wire.Sent, r.Wire.Received)
	}
	if s := r.Waiting; s != nil {
		fmt.Fprintf(&b, "  a waiter (of %d): %.3f requests/s, %.1f bytes/s\n", s.Count, s.Requests, s.Bytes)
	}
	if s := r.Holding; s != nil {
		fmt.Fprintf(&b, "  a lock held (of %d, TTL %v): %.3f requests/s, %.1f bytes/s\n",
			s.Count, idleTTL, s.Requests, s.Bytes)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// settingLines describes what was measured, with what, and on what machine.
func (r *Report) settingLines() []string {
	store := r.Store + " store"
	if len(r.Servers) > 0 {
		store += " on " + strings.Join(r.Servers, ", ")
	}
	machine := fmt.Sprintf("%s, %s, %d CPUs", r.Go, r.System, r.CPUs)
	if r.LoadBefore >= 0 {
		machine += fmt.Sprintf(", load average %.1f before and %.1f after", r.LoadBefore, r.LoadAfter)
	}
	return []string{store + fmt.Sprintf(", TTL of the locks %v", r.TTL), machine}
}

// writeTable writes rows of cells that are separated by tabs.
func writeTable(w io.Writer, rows ...string) {
	t := tabwriter.NewWriter(w, 8, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(t, row+"\t")
	}
	_ = t.Flush() // It writes to a buffer.
}

// cells returns five cells of a table. A nil Times means that nothing was measured.
func (t *Times) cells() string {
	if t == nil {
		return "-\t-\t-\t-\t0"
	}
	return fmt.Sprintf("%v\t%v\t%v\t%v\t%d",
		roundDuration(t.P50), roundDuration(t.P99), roundDuration(t.P999), roundDuration(t.Max), t.Count)
}

// roundDuration rounds to about three digits.
func roundDuration(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}
