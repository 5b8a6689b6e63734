package command

import (
	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// eventLines is the display that writes a line for each change.
type eventLines struct {
	printNotice func(string, ...any)
	known       map[string]holdfast.Record
	lastErrors  string
}

func (l *eventLines) showSnapshot(p *lockview.Snapshot) error {
	l.printErrors(p.Errs)
	now := p.ByName()
	var lines []byte
	for _, e := range lockview.EventsBetween(l.known, now, p.At) {
		line, err := jsonLine(e)
		if err != nil {
			return exitErrorFor(err)
		}
		lines = append(lines, line...)
	}
	l.known = now
	if len(lines) == 0 {
		return nil
	}
	return writeOutput(lines)
}

// printErrors reports the errors unless they are those of the last snapshot.
func (l *eventLines) printErrors(errs []error) {
	current := ""
	for _, err := range errs {
		current += err.Error() + "\n"
	}
	if current == l.lastErrors {
		return
	}
	l.lastErrors = current
	for _, err := range errs {
		l.printNotice("%w", err)
	}
}

func (l *eventLines) onResume() {}

func (l *eventLines) finish() {}
