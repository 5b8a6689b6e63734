package driver

import (
	"context"
	"fmt"
	"time"
)

// An Examiner is a Store that can examine its servers and their settings for what endangers locks.
type Examiner interface {
	Store

	// Examine returns a Finding for each check of the store, in a fixed order. It reads, and
	// changes nothing, except for files and the like that it makes and deletes at once if
	// Examination.NoProbe is not set. A check that may not read what it needs has a Finding of
	// SeverityUnknown.
	// An error means that the store cannot be reached, or lets nobody in; the findings are those
	// made before it.
	Examine(ctx context.Context, o Examination) ([]Finding, error)

	// Forget removes what the store remembers of a name that is free and that no client will use
	// again, its last token included. The names that an examination has tried leave no trace then.
	Forget(ctx context.Context, name string) error
}

// An Examination describes what the locks of the store are for.
type Examination struct {
	// TTL is the shortest TTL of the locks.
	TTL time.Duration

	// NoProbe forbids to write, even for a moment.
	NoProbe bool
}

// A Finding is the result of one check.
type Finding struct {
	// Check identifies the check, as in "redis.eviction". It does not change between versions.
	Check string

	// Server is where it was made, if the store has several servers: an address, or "node 2".
	Server string

	// Severity is how bad the finding is.
	Severity Severity

	// Found is what was found, Want what should be, and Remedy the command or setting that mends it.
	// The last two are empty if the Severity is SeverityOK.
	Found  string
	Want   string
	Remedy string
}

// String returns the finding in one line.
func (f Finding) String() string {
	text := f.Severity.String() + " " + f.Check
	if f.Server != "" {
		text += " (" + f.Server + ")"
	}
	text += ": " + f.Found
	if f.Want != "" {
		text += "; want " + f.Want
	}
	if f.Remedy != "" {
		text += "; try " + f.Remedy
	}
	return text
}

// A Severity is how bad a Finding is.
type Severity uint8

const (
	// SeverityOK means that all is as it should be.
	SeverityOK Severity = iota + 1

	// SeverityNote means that there is something to know and nothing to mend.
	SeverityNote

	// SeverityUnknown means that the check could not be made.
	SeverityUnknown

	// SeverityWarning means that locks work, and that a crash, a failover, a full server or another
	// user may cost some of them, or that they are slow.
	SeverityWarning

	// SeverityFailure means that locks do not work, or that two clients may hold one while nothing
	// else goes wrong.
	SeverityFailure
)

var severityNames = map[Severity]string{
	SeverityOK: "ok", SeverityNote: "note", SeverityUnknown: "unknown", SeverityWarning: "warn", SeverityFailure: "fail",
}

// String returns "ok", "note", "unknown", "warn" or "fail".
func (s Severity) String() string {
	if name, ok := severityNames[s]; ok {
		return name
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// MarshalText returns the text of String, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
