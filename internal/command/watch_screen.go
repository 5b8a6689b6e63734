package command

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/internal/lockview"
)

// What is sent to a terminal, apart from text.
const (
	escapeUp       = "\x1b[%dA"      // the cursor, by so many lines
	escapeEraseRow = "\x1b[K"        // from the cursor on
	escapeErase    = "\x1b[J"        // everything from the cursor on
	escapeClear    = "\x1b[H\x1b[2J" // everything, with the cursor at the top
	escapeBold     = "\x1b[1m"
	escapeDim      = "\x1b[2m"
	escapePlain    = "\x1b[m"
)

// A screen is the display that keeps a table up to date on a terminal.
//
// It writes each snapshot over the one before, and changes nothing of the terminal itself:
// however the program ends, or is suspended, there is nothing to restore.
type screen struct {
	out      *os.File
	store    string
	interval time.Duration
	styled   bool

	// rows is how many rows the last snapshot took. width and height are those of the terminal
	// then.
	rows, width, height int
}

func (s *screen) showSnapshot(p *lockview.Snapshot) error {
	var text bytes.Buffer
	s.moveToStart(&text)
	age, stale := p.Stale(time.Now(), s.interval)
	lines := s.renderLines(p, age, stale)
	for i, line := range lines {
		text.WriteString(escapeEraseRow)
		switch {
		case s.styled && stale:
			line = escapeDim + line + escapePlain
		case s.styled && i == titleRow:
			line = escapeBold + line + escapePlain
		}
		fmt.Fprintln(&text, line)
	}
	text.WriteString(escapeErase)
	s.rows = len(lines)
	return writeOutput(text.Bytes())
}

// moveToStart moves the cursor to the beginning of the last snapshot. If the size of the
// terminal has changed since then, that place is unknown, and moveToStart clears the screen
// instead.
func (s *screen) moveToStart(text *bytes.Buffer) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	switch {
	case s.width != 0 && (width != s.width || height != s.height):
		text.WriteString(escapeClear)
	case s.rows > 0:
		fmt.Fprintf(text, "\r"+escapeUp, s.rows)
	}
	s.width, s.height = width, height
}

// titleRow is where the titles of the table are.
const titleRow = 1

// renderLines formats a snapshot: a heading, the table, and the errors. It leaves a row of the
// terminal to the cursor.
func (s *screen) renderLines(p *lockview.Snapshot, age time.Duration, stale bool) []string {
	width, room := s.width-1, max(s.height-1, 1)
	lines := append([]string{truncateCells(s.heading(p, age, stale), width)}, tableLines(p.Locks, width)...)
	const least = 3 // heading, titles, and that there is more
	if most := max(room-len(p.Errs), least); len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1], truncateCells(fmt.Sprintf("and %d more", more), width))
	}
	for _, err := range p.Errs {
		lines = append(lines, truncateCells((&exitError{err: err}).Error(), width))
	}
	return lines[:min(len(lines), room)]
}

func (s *screen) heading(p *lockview.Snapshot, age time.Duration, stale bool) string {
	at, waiting, note := p.At, 0, ""
	for _, rec := range p.Locks {
		waiting += rec.Waiting
	}
	if waiting > 0 {
		note = fmt.Sprintf(", %d waiting", waiting)
	}
	if stale && !p.Answered.IsZero() {
		at, note = p.Answered, ", no answer for "+lockview.ShortDuration(age)
	}
	return fmt.Sprintf("%s in the %s store at %s%s, Ctrl-C to end", plural(len(p.Locks), "lock"), s.store, at.Format(time.TimeOnly), note)
}

// onResume continues below what the shell has written meanwhile.
func (s *screen) onResume() { s.rows = 0 }

// finish erases the ^C that the terminal has shown.
func (s *screen) finish() { _, _ = s.out.WriteString("\r" + escapeErase) }
