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
		writeAdvisoryTable(&out, views)
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

// writeAdvisoryTable writes the locks as a table.
func writeAdvisoryTable(out *bytes.Buffer, views []advisoryView) {
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, columnGap, ' ', 0)
	fmt.Fprintln(t, "KEY\tSTATE\tPID\tAPPLICATION\tCONNECTED\tBLOCKED BY")
	for _, v := range views {
		connected := "-"
		if v.Connected != nil {
			connected = lockview.ShortDuration(time.Since(*v.Connected))
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", v.Key, v.stateText(), v.PID, lockview.Readable(v.Application), connected, v.blockers())
	}
	_ = t.Flush() // to a buffer
	width := outputWidth(os.Stdout)
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(out, truncateCells(strings.TrimRight(line, " \n"), width))
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
