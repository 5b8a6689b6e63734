package once

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// ErrNotRecorded is in the error of a run that has succeeded, but whose success
// could not be recorded: the work may be done again.
var ErrNotRecorded = errors.New("once: the work was done, but that could not be recorded")

// A Verdict says what became of a call.
type Verdict int

const (
	// Unknown: there was an error before it could be told.
	Unknown Verdict = iota

	// Ran: the work was run by this call. The error says how it ended.
	Ran

	// Done: the work was done before, by this replica or another; or, with
	// AtMostOnce, begun.
	Done

	// Busy: somebody else runs the job at the moment: this piece of work or,
	// of a job with slots, that of an earlier slot.
	Busy

	// Missed: the slot was over, by this replica's clock, before the work
	// could begin. Nothing was run by this call; others may have run it.
	Missed
)

func (v Verdict) String() string {
	switch v {
	case Ran:
		return "ran"
	case Done:
		return "done before"
	case Busy:
		return "busy"
	case Missed:
		return "missed"
	}
	return "unknown"
}

// A Result says what became of a call, and why the work was not run.
type Result struct {
	Verdict Verdict

	// Slot is the slot that was asked for, zero for Do.
	Slot Slot

	// Token is the fencing token of the run, if the verdict is Ran.
	Token int64

	// Holder is the public name of the one who runs the job, if the verdict is
	// Busy and the store told. (Of work that is done the stores keep no name.)
	Holder string

	// Until is, by this host's wall clock, the end of the time for which the
	// work counts as done, if the verdict is Done; and when the other's lock
	// ends unless it is renewed, if it is Busy. Zero if the store did not tell.
	Until time.Time
}

// String says the same in words, for logs.
func (r Result) String() string {
	text := r.Verdict.String()
	if r.Holder != "" {
		text += " with " + r.Holder
	}
	if !r.Slot.Start.IsZero() {
		text = fmt.Sprintf("%s: %s", r.Slot.Start.Format(time.RFC3339Nano), text)
	}
	return text
}

// in is the result of a call that found a lock or a mark in the way.
func (r Result) in(v Verdict, rec holdfast.Record) Result {
	r.Verdict = v
	if v == Busy {
		r.Holder = rec.Holder
	}
	if rec.Remaining > 0 {
		r.Until = time.Now().Round(0).Add(rec.Remaining)
	}
	return r
}
