//go:build unix

package torture

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
)

// now reads the clock that all processes of the host share.
func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // It cannot fail with this clock.
	return time.Duration(t.Nano())
}

// A Step is the kind of an Event.
type Step string

const (
	// Of a worker, in the order in which they happen.
	Asks     Step = "asks"     // it begins to acquire
	Got      Step = "got"      // the acquisition succeeded
	Refused  Step = "refused"  // the acquisition failed
	Sees     Step = "sees"     // it checked the lock, and holds it
	Loses    Step = "loses"    // it checked the lock, and no longer holds it
	CtxEnds  Step = "ctx ends" // it saw the end of the lock's context
	Extends  Step = "extends"  // it extended the lock
	Releases Step = "releases" // it begins to release
	Released Step = "released" // the release returned

	// Of a process.
	EndsAll  Step = "ends all" // it begins to release all locks of a client, or closes it
	EndedAll Step = "ended all"
	Begins   Step = "begins"
	Ends     Step = "ends" // in good order; Err names locks that are still held
	Fails    Step = "fails"

	// Of the coordinator.
	Harm  Step = "harm"  // the fault named by Fault begins
	Gone  Step = "gone"  // a process that is being killed has ended
	Heals Step = "heals" // the fault ends
)

// An Event is a line of the log.
type Event struct {
	At     time.Duration `json:"at"` // on the clock of the host
	Step   Step          `json:"step"`
	Proc   int           `json:"proc,omitempty"`   // from 1; 0 is the coordinator
	Server int           `json:"server,omitempty"` // the one with the fault, from 1
	Worker int           `json:"worker,omitempty"` // of the process, from 1
	Try    int           `json:"try,omitempty"`    // counts the acquisitions of the worker, from 1
	Name   string        `json:"name,omitempty"`
	Token  int64         `json:"token,omitempty"`

	// Until is the time up to which the worker may rely on the lock: its deadline as it was at At,
	// or a little before that.
	Until time.Duration `json:"until,omitempty"`

	// Limit is that of a driver.Request.
	Limit int `json:"limit,omitempty"`

	// Waits reports whether the worker of an Asks waits for the lock.
	Waits bool `json:"waits,omitempty"`

	// Under reports that the work for which the worker got the lock runs under Do. The work begins
	// with Got and ends with Releases, and Released is the result of Do.
	Under bool `json:"under,omitempty"`

	// Client counts the clients of the process, from 1: the client of a worker that got a lock, and
	// the client of an EndsAll.
	Client int `json:"client,omitempty"`

	// Held reports whether a refusal was ErrHeld: another holder had the lock.
	Held bool `json:"held,omitempty"`

	// Lost reports whether a context ended because the lock was lost, and Over whether it ended
	// because of the lock at all.
	Lost bool `json:"lost,omitempty"`
	Over bool `json:"over,omitempty"`

	// Foreign reports that the lock is that of a client of another kind.
	Foreign bool `json:"foreign,omitempty"`

	Fault Fault  `json:"fault,omitempty"`
	Err   string `json:"err,omitempty"`
}

// formatLine returns the event as one line, with its time since the start of the run.
func (e Event) formatLine(begin time.Duration) string {
	text := fmt.Sprintf("%10.6f  ", (e.At - begin).Seconds())
	switch {
	case e.Server > 0:
		return text + fmt.Sprintf("%-5s  %s of server %d", e.Step, e.Fault, e.Server)
	case e.Fault != "":
		return text + fmt.Sprintf("%-5s  %s of process %d", e.Step, e.Fault, e.Proc)
	}
	text += fmt.Sprintf("%d.%d  %-8s", e.Proc, e.Worker, e.Step)
	if e.Under {
		text += "  under Do"
	}
	if e.Foreign {
		text += "  foreign"
	}
	switch {
	case e.Limit == driver.Shared:
		text += "  shared"
	case e.Limit > 1:
		text += fmt.Sprintf("  limit %d", e.Limit)
	}
	if e.Token != 0 {
		text += fmt.Sprintf("  token %d", e.Token)
	}
	if e.Until != 0 {
		text += fmt.Sprintf(" until %.6f", (e.Until - begin).Seconds())
	}
	if e.Err != "" {
		text += ": " + e.Err
	}
	return text
}

// An eventLog is the log of one process. Every event is written to the kernel before the process
// goes on: a step is on record even if the process is killed at the next instruction.
type eventLog struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

// maxLineLen bounds a line of an event log, in bytes.
const maxLineLen = 1 << 20

// openEventLog opens the log of a process, or of the successor of a killed one. A kill can
// interrupt a write at the end of a page of the file: hence it begins with a line of its own. The
// step of an incomplete line was not taken, or its result not used.
func openEventLog(path string) (*eventLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString("\n")
	return &eventLog{file: file, err: err}, nil
}

func (l *eventLog) appendEvent(e Event) {
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("write the log: %w", err)
	}
}

func (l *eventLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	return l.err
}

// errorText returns the Err of an Event.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
