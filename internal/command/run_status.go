package command

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-go/holdfast/internal/supervise"
)

// The outcomes are one word each for how a run ended.
const (
	outcomeDone        = "done"        // the command has ended, the lock was released
	outcomeBusy        = "busy"        // another owner had the lock
	outcomeInterrupted = "interrupted" // by a signal, before the command was started
	outcomeUnavailable = "unavailable" // the store or the command line is at fault
	outcomeNotStarted  = "not_started" // the command cannot be executed
	outcomeLost        = "lost"        // the lock was lost, the command was stopped
	outcomeUnconfirmed = "unconfirmed" // the command has ended; the lock was lost before, or may not be free
	outcomeAbandoned   = "abandoned"   // holdfast was killed, and the command for that reason
)

// A status is what --status-file holds.
type status struct {
	Name            string     `json:"name"`
	Outcome         string     `json:"outcome"`
	ExitCode        int        `json:"exit_code"`
	CommandExitCode *int       `json:"command_exit_code,omitempty"`
	Token           int64      `json:"token,omitempty"`
	Holder          string     `json:"holder,omitempty"`
	WaitedMS        int64      `json:"waited_ms"`
	HeldMS          int64      `json:"held_ms"`
	LostAt          *time.Time `json:"lost_at,omitempty"`
	Error           string     `json:"error,omitempty"`
}

// An acquiredNote is the note that the supervisor leaves for its parent: the part of a status
// that describes a lock that was acquired.
type acquiredNote struct {
	Token    int64
	Holder   string
	WaitedMS int64
	At       time.Time
}

// saveNote leaves the parent a note of a lock that was acquired.
func (s *status) saveNote(sup *supervise.Supervisor, acquired time.Time) {
	if note, err := json.Marshal(acquiredNote{s.Token, s.Holder, s.WaitedMS, acquired}); err == nil {
		sup.SetNote(note)
	}
}

// statusFromNote returns the status of a run after its supervisor has failed.
func (r *runCommand) statusFromNote(failed *supervise.Failure) *status {
	s := &status{Name: r.name, Outcome: outcomeLost}
	var note acquiredNote
	if json.Unmarshal(failed.Note, &note) != nil {
		return s // no lock was acquired
	}
	s.Token, s.Holder, s.WaitedMS = note.Token, note.Holder, note.WaitedMS
	s.HeldMS = failed.Lost.Sub(note.At).Milliseconds()
	s.LostAt = &failed.Lost
	return s
}

// finishRun writes the status file, if one is wanted. It returns the error with which the
// subcommand ends: err, or under --quiet its code alone. If the file cannot be written,
// finishRun reports that to w and changes nothing else.
func (r *runCommand) finishRun(w io.Writer, s *status, err *exitError) *exitError {
	if r.statusFile != (statusFile{}) {
		s.ExitCode = err.code
		if err.err != nil {
			s.Error = err.Error()
		}
		if err := r.statusFile.writeStatus(s); err != nil {
			reportError(r.messageWriter(w), &exitError{err: fmt.Errorf("write --status-file: %w", err)})
		}
	}
	if r.quiet {
		return &exitError{code: err.code}
	}
	return err
}
