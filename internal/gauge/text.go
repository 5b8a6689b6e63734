//go:build unix

package gauge

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Write writes the report for people, 80 columns wide.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s store, %s, %s, %d CPUs\n", r.Store, r.Go, r.System, r.CPUs)
	b.WriteString("\nOne worker\n")
	table(&b, func(row func(...any)) {
		row("", "p50", "p99", "p99.9", "max", "calls")
		row("acquire", r.Acquire)
		row("release", r.Release)
	})
	b.WriteString("\nPairs of acquire and release, each worker with a lock of its own\n")
	table(&b, func(row func(...any)) {
		row("workers", "pairs/s", "p50", "p99", "p99.9", "max")
		for _, rate := range r.Rates {
			row(rate.Workers, fmt.Sprintf("%.0f", rate.PerSecond), rate.Times.brief())
		}
	})
	r.writeProcesses(&b)
	r.writeWire(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeProcesses(b *strings.Builder) {
	if r.HandOver != nil {
		b.WriteString("\nHand-over from one process to another that waits\n")
		table(b, func(row func(...any)) {
			row("", "p50", "p99", "p99.9", "max", "calls")
			row("hand-over", r.HandOver)
		})
	}
	if c := r.Contention; c != nil {
		fmt.Fprintf(b, "\n%d processes with %d workers each who want one lock\n", c.Processes, c.Workers)
		table(b, func(row func(...any)) {
			row("", "p50", "p99", "p99.9", "max", "calls")
			row("wait", c.Wait)
		})
		fmt.Fprintf(b, "  %.0f hand-overs/s; Jain's fairness (1 is best): processes %.3f, workers %.3f\n",
			c.PerSecond, c.Jain, c.JainWorkers)
	}
}

func (r *Report) writeWire(b *strings.Builder) {
	if r.Wire == nil {
		b.WriteString("\nThere is no network between here and the store that could be watched.\n")
		return
	}
	b.WriteString("\nOn the network\n")
	fmt.Fprintf(b, "  a pair: %.1f requests, %.0f bytes sent, %.0f received\n", r.Wire.Requests, r.Wire.Sent, r.Wire.Received)
	if s := r.Waiting; s != nil {
		fmt.Fprintf(b, "  a waiter (of %d): %.3f requests/s, %.1f bytes/s\n", s.Count, s.Requests, s.Bytes)
	}
	if s := r.Holding; s != nil {
		fmt.Fprintf(b, "  a lock held (of %d, TTL %v): %.3f requests/s, %.1f bytes/s\n", s.Count, standbyTTL, s.Requests, s.Bytes)
	}
}

// table writes rows with aligned columns; Times take five of them.
func table(b *strings.Builder, fill func(row func(...any))) {
	t := tabwriter.NewWriter(b, 8, 0, 2, ' ', tabwriter.AlignRight)
	fill(func(cells ...any) {
		for _, c := range cells {
			switch c := c.(type) {
			case *Times:
				fmt.Fprintf(t, "%s\t%d\t", c.brief(), c.Count)
			default:
				fmt.Fprintf(t, "%v\t", c)
			}
		}
		fmt.Fprintln(t)
	})
	_ = t.Flush() // to a buffer
}

// brief is four cells of a table.
func (t *Times) brief() string {
	return fmt.Sprintf("%v\t%v\t%v\t%v", readable(t.P50), readable(t.P99), readable(t.P999), readable(t.Max))
}

// readable rounds to three digits or so.
func readable(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}
