package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
)

// PostgreSQL knows its advisory locks by their keys alone, whichever program has taken them. A
// listing therefore shows sessions, those that wait included.

// An advisoryView is an advisory lock as --json shows it.
type advisoryView struct {
	Key         string     `json:"key"`
	State       string     `json:"state"` // held or waiting
	Shared      bool       `json:"shared,omitempty"`
	PID         int32      `json:"pid"`
	Application string     `json:"application,omitempty"`
	Connected   *time.Time `json:"connected,omitempty"`
	Since       *time.Time `json:"since,omitempty"`
	BlockedBy   []int32    `json:"blocked_by,omitempty"`
}

func newAdvisoryView(lock advisory.Lock) advisoryView {
	v := advisoryView{
		Key: lock.Key.String(), State: "held", Shared: lock.Shared,
		PID: lock.PID, Application: lock.Application, BlockedBy: lock.BlockedBy,
	}
	if !lock.Granted {
		v.State = "waiting"
	}
	if !lock.Connected.IsZero() {
		v.Connected = &lock.Connected
	}
	if !lock.Since.IsZero() {
		v.Since = &lock.Since
	}
	return v
}

// listAdvisory lists advisory locks and the sessions that wait for them.
func (c *cli) listAdvisory(ctx context.Context, store *advisory.Store, prefix string) error {
	if prefix != "" {
		return usageError(fmt.Errorf("the server knows the keys of advisory locks, and not their names"), "holdfast ls without a PREFIX")
	}
	var views []advisoryView
	for lock, err := range store.Locks(ctx) {
		if err != nil {
			return exitErrorFor(err)
		}
		views = append(views, newAdvisoryView(lock))
	}
	if len(views) == 0 {
		c.printNotice("there are no advisory locks")
		return nil
	}
	var out bytes.Buffer
	if !c.json {
		for _, line := range advisoryLines(views, outputWidth(os.Stdout)) {
			fmt.Fprintln(&out, line)
		}
		return writeOutput(out.Bytes())
	}
	for _, v := range views {
		line, err := jsonLine(v)
		if err != nil {
			return exitErrorFor(err)
		}
		out.Write(line)
	}
	return writeOutput(out.Bytes())
}

// advisoryLines returns a line of titles and a line for each lock, none longer than width. The
// names of applications are cut first.
func advisoryLines(views []advisoryView, width int) []string {
	var lines []string
	for most := unlimitedWidth; ; {
		var table strings.Builder
		t := tabwriter.NewWriter(&table, 0, 0, columnGap, ' ', 0)
		fmt.Fprintln(t, "KEY\tSTATE\tPID\tAPPLICATION\tCONNECTED\tBLOCKED BY")
		longest := 0
		for _, v := range views {
			connected := "-"
			if v.Connected != nil {
				connected = lockview.ShortDuration(time.Since(*v.Connected))
			}
			application := truncateCells(lockview.Readable(v.Application), most)
			longest = max(longest, cellWidth(application))
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", v.Key, v.stateText(), v.PID, application, connected, v.blockers())
		}
		_ = t.Flush() // to memory
		lines = lines[:0]
		excess := 0
		for line := range strings.Lines(table.String()) {
			line = strings.TrimRight(line, " \n")
			excess = max(excess, cellWidth(line)-width)
			lines = append(lines, truncateCells(line, width))
		}
		const least = len("APPLICATION")
		if excess == 0 || longest <= least {
			return lines
		}
		most = max(longest-excess, least)
	}
}

func (v *advisoryView) stateText() string {
	if v.Shared {
		return v.State + " (shared)"
	}
	return v.State
}

func (v *advisoryView) blockers() string {
	var pids []string
	for _, pid := range v.BlockedBy {
		pids = append(pids, strconv.Itoa(int(pid)))
	}
	return strings.Join(pids, " ")
}
