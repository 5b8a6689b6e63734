//go:build unix

package torture

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// A Step is what an Event tells.
type Step string

const (
	// Of a worker, in the order in which they come.
	Asks     Step = "asks"     // it begins to acquire
	Got      Step = "got"      // it was told that it holds the lock
	Refused  Step = "refused"  // it was told that it does not
	Sees     Step = "sees"     // it looked, and holds the lock
	Loses    Step = "loses"    // it looked, and does not hold the lock any more
	CtxEnds  Step = "ctx ends" // it saw the end of the lock's context
	Extends  Step = "extends"  // it was told that the lock was extended
	Reads    Step = "reads"    // it reads the register
	Writes   Step = "writes"   // the register took what it wrote
	Fenced   Step = "fenced"   // the register refused it
	Releases Step = "releases" // it begins to release
	Released Step = "released" // it was told how that went

	// Of a process.
	Begins Step = "begins"
	Ends   Step = "ends" // in good order, with nothing left behind but Goroutines
	Fails  Step = "fails"

	// Of the coordinator.
	Harm  Step = "harm"  // what Fault says begins
	Heals Step = "heals" // and ends
)

// An Event is a line of the log.
type Event struct {
	At     time.Duration `json:"at"` // on the clock of the host
	Step   Step          `json:"step"`
	Proc   int           `json:"proc,omitempty"`   // from 1; 0 is the coordinator
	Server int           `json:"server,omitempty"` // that is harmed, from 1
	Worker int           `json:"worker,omitempty"` // of the process, from 1
	Try    int           `json:"try,omitempty"`    // counts the worker's acquisitions, from 1
	Name   string        `json:"name,omitempty"`
	Token  int64         `json:"token,omitempty"`

	// Until is up to when the worker may rely on the lock: its deadline as it
	// was At, or a little before that.
	Until time.Duration `json:"until,omitempty"`

	// Value is what was read from or written to the register.
	Value int64 `json:"value,omitempty"`

	// Waits says whether a worker that asks waits for the lock.
	Waits bool `json:"waits,omitempty"`

	Goroutines int    `json:"goroutines,omitempty"`
	Fault      Fault  `json:"fault,omitempty"`
	Err        string `json:"err,omitempty"`
}

// line tells the event on one line, with its time since the begin of the run.
func (e Event) line(begin time.Duration) string {
	text := fmt.Sprintf("%10.6f  ", (e.At - begin).Seconds())
	switch {
	case e.Server > 0:
		return text + fmt.Sprintf("%-5s  %s of server %d", e.Step, e.Fault, e.Server)
	case e.Fault != "":
		return text + fmt.Sprintf("%-5s  %s of process %d", e.Step, e.Fault, e.Proc)
	}
	text += fmt.Sprintf("%d.%d  %-8s", e.Proc, e.Worker, e.Step)
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

// A journal is the log of one process. Every event is handed to the kernel
// before the process goes on: what it has done is on record even if it is killed
// at the next instruction.
type journal struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &journal{file: file}, nil
}

func (j *journal) write(e Event) {
	line, err := json.Marshal(e)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("write the log: %w", err)
	}
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.Close(); j.err == nil {
		j.err = err
	}
	return j.err
}
