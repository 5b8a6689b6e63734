package once

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// ErrNotRecorded is matched by the error of a run that has succeeded if the success could not be
// recorded: the work may be done again.
var ErrNotRecorded = errors.New("once: the work was done, but that could not be recorded")

// A Verdict is the outcome of a call.
type Verdict int

const (
	// Unknown means that an error occurred before the outcome was known.
	Unknown Verdict = iota

	// Ran means that this call ran the work. The error is how it ended.
	Ran

	// Done means that the work was done before, by this replica or another. With AtMostOnce it
	// means that the work was begun.
	Done

	// Busy means that another call runs the job at the moment: this piece of work or, for a job
	// with slots, the work of an earlier slot.
	Busy

	// Missed means that the slot was over, by this replica's clock, before the work could begin.
	// This call ran nothing; another may have run the work.
	Missed
)

func (v Verdict) String() string {
	return [...]string{Unknown: "unknown", Ran: "ran", Done: "done before", Busy: "busy", Missed: "missed"}[v]
}

// A Result is the outcome of a call, with the reason if the work was not run.
type Result struct {
	Verdict Verdict

	// Slot is the slot of the call, zero for Do.
	Slot Slot

	// Record is the name under which the store keeps that the work was done: holdfast.Client.Break
	// with token 0 forgets it.
	Record string

	// Token is the fencing token of the run, if the verdict is Ran.
	Token int64

	// Holder is the public name of the Client that runs the job, if the verdict is Busy and the
	// store reported it. (Of work that is done the stores keep no name.)
	Holder string

	// Until is a time by this host's wall clock. If the verdict is Done, it is the end of the time
	// for which the work counts as done. If it is Busy, it is when the lock of the job ends unless
	// it is renewed. It is zero if the store did not report it.
	Until time.Time
}

// String returns the outcome in words, for logs.
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

// withRecord returns the result of a call that found the lock held, or the mark placed, with what
// the store's record shows.
func (r Result) withRecord(v Verdict, rec holdfast.Record) Result {
	r.Verdict = v
	if v == Busy {
		r.Holder = rec.Holder
	}
	if rec.Remaining > 0 {
		r.Until = time.Now().Round(0).Add(rec.Remaining)
	}
	return r
}
