package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
	locks, err := store.Locks(ctx)
	if err != nil {
		return exitErrorFor(err)
	}
	for _, lock := range locks {
		views = append(views, newAdvisoryView(lock))
	}
	if len(views) == 0 {
		c.printNotice("there are no advisory locks")
		return nil
	}
	return printList(c, views, advisoryRows(views))
}

// advisoryRows returns the rows of a table of advisory locks.
func advisoryRows(views []advisoryView) [][]string {
	rows := [][]string{{"KEY", "STATE", "PID", "APPLICATION", "CONNECTED", "BLOCKED BY"}}
	for _, v := range views {
		state, connected := v.State, "-"
		if v.Shared {
			state += " (shared)"
		}
		if v.Connected != nil {
			connected = lockview.ShortDuration(time.Since(*v.Connected))
		}
		var blockers []string
		for _, pid := range v.BlockedBy {
			blockers = append(blockers, strconv.Itoa(int(pid)))
		}
		rows = append(rows, []string{
			v.Key, state, strconv.Itoa(int(v.PID)), lockview.Readable(v.Application), connected, strings.Join(blockers, " "),
		})
	}
	return rows
}
