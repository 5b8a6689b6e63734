package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// An outcome says in a word how a run ended.
type outcome string

const (
	done        outcome = "done"        // the command has ended, the lock was released
	busy        outcome = "busy"        // somebody else had the lock
	interrupted outcome = "interrupted" // by a signal, before the command was started
	unavailable outcome = "unavailable" // the store or the command line is at fault
	notStarted  outcome = "not_started" // the command cannot be executed
	lost        outcome = "lost"        // the lock was lost, the command was stopped
	unconfirmed outcome = "unconfirmed" // the command has ended; the lock was lost before, or may not be free
	abandoned   outcome = "abandoned"   // holdfast was killed, and the command therefore
)

// A status is what --status-file holds.
type status struct {
	Name            string     `json:"name"`
	Outcome         outcome    `json:"outcome"`
	ExitCode        int        `json:"exit_code"`
	CommandExitCode *int       `json:"command_exit_code,omitempty"`
	Token           int64      `json:"token,omitempty"`
	Holder          string     `json:"holder,omitempty"`
	WaitedMS        int64      `json:"waited_ms"`
	HeldMS          int64      `json:"held_ms"`
	LostAt          *time.Time `json:"lost_at,omitempty"`
	Error           string     `json:"error,omitempty"`
}

// finish writes the status file, if one is wanted, and returns the error that the
// subcommand is to end with: err, which is an *exit, or its code alone if the user
// wants to hear nothing. That the file cannot be written is told to w and changes
// nothing.
func (r *runCommand) finish(w io.Writer, s *status, err *exit) *exit {
	if r.statusFile != "" {
		s.ExitCode = err.code
		if err.err != nil {
			s.Error = err.Error()
		}
		if err := s.write(r.statusFile); err != nil {
			_, _ = fmt.Fprintf(r.out(w), "holdfast: write --status-file: %v\n", err)
		}
	}
	if r.quiet {
		return &exit{code: err.code}
	}
	return err
}

// write replaces the file in one step.
func (s *status) write(path string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
