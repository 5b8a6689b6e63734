package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// What is sent to a terminal, apart from text.
const (
	escapeUp       = "\x1b[%dA"      // the cursor, by so many lines
	escapeEraseRow = "\x1b[K"        // from the cursor on
	escapeErase    = "\x1b[J"        // everything from the cursor on
	escapeClear    = "\x1b[H\x1b[2J" // everything, with the cursor at the top
	escapeBold     = "\x1b[1m"
	escapePlain    = "\x1b[m"
)

// A screen is the display that keeps a table up to date on a terminal.
//
// It writes each snapshot over the one before, and changes nothing of the terminal itself:
// however the program ends, or is suspended, there is nothing to restore.
type screen struct {
	out   *os.File
	store string
	bold  bool

	// rows is how many rows the last snapshot took. width and height are those of the terminal
	// then.
	rows, width, height int
}

func (s *screen) showSnapshot(p *snapshot) error {
	var text bytes.Buffer
	s.moveToStart(&text)
	lines := s.renderLines(p)
	for i, line := range lines {
		text.WriteString(escapeEraseRow)
		if s.bold && i == titleRow {
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
func (s *screen) renderLines(p *snapshot) []string {
	width, room := s.width-1, max(s.height-1, 1)
	lines := append([]string{truncateCells(s.heading(p), width)}, tableLines(p.locks, width)...)
	const least = 3 // heading, titles, and that there is more
	if most := max(room-len(p.errs), least); len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1], truncateCells(fmt.Sprintf("and %d more", more), width))
	}
	for _, err := range p.errs {
		lines = append(lines, truncateCells((&exitError{err: err}).Error(), width))
	}
	return lines[:min(len(lines), room)]
}

func (s *screen) heading(p *snapshot) string {
	noun := "locks"
	if len(p.locks) == 1 {
		noun = "lock"
	}
	return fmt.Sprintf("%d %s in the %s store at %s, Ctrl-C to end", len(p.locks), noun, s.store, p.at.Format(time.TimeOnly))
}

// onResume continues below what the shell has written meanwhile.
func (s *screen) onResume() { s.rows = 0 }

// finish erases the ^C that the terminal has shown.
func (s *screen) finish() { _, _ = s.out.WriteString("\r" + escapeErase) }
