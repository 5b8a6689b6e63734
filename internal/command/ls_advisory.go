package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
)

// PostgreSQL knows its advisory locks by their keys alone, whichever program has taken them. A
// listing therefore shows sessions, those that wait included.

// An advisoryView is an advisory lock as --json shows it.
type advisoryView struct {
	Key         string    `json:"key"`
	State       string    `json:"state"` // held or waiting
	Shared      bool      `json:"shared,omitempty"`
	PID         int32     `json:"pid"`
	Application string    `json:"application,omitempty"`
	Connected   time.Time `json:"connected,omitzero"`
	Since       time.Time `json:"since,omitzero"`
	BlockedBy   []int32   `json:"blocked_by,omitempty"`
}

// listAdvisory lists advisory locks and the sessions that wait for them.
func (c *cli) listAdvisory(ctx context.Context, store *advisory.Store, prefix string) error {
	if prefix != "" {
		return usageError(errors.New("the server knows the keys of advisory locks, and not their names"), "holdfast ls without a PREFIX")
	}
	locks, err := store.Locks(ctx)
	if err != nil {
		return err
	}
	var views []advisoryView
	rows := [][]string{{"KEY", "STATE", "PID", "APPLICATION", "CONNECTED", "BLOCKED BY"}}
	for _, l := range locks {
		v := advisoryView{l.Key, "held", l.Shared, l.PID, l.Application, l.Connected, l.Since, l.BlockedBy}
		if !l.Granted {
			v.State = "waiting"
		}
		state, connected := v.State, "-"
		if v.Shared {
			state += " (shared)"
		}
		if !v.Connected.IsZero() {
			connected = lockview.ShortDuration(time.Since(v.Connected))
		}
		views = append(views, v)
		rows = append(rows, []string{v.Key, state, fmt.Sprint(v.PID), lockview.Readable(v.Application), connected, strings.Trim(fmt.Sprint(v.BlockedBy), "[]")})
	}
	if len(views) == 0 {
		c.notice(os.Stderr, "there are no advisory locks")
	}
	return printList(c, views, rows)
}
