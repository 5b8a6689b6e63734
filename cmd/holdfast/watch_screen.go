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
// It writes each picture over the one before, and changes nothing of the terminal
// itself: however the program ends, or is suspended, there is nothing to restore.
type screen struct {
	out   *os.File
	store string
	bold  bool

	// rows is how many rows the last picture took. width and height are what the
	// terminal had then.
	rows, width, height int
}

func (s *screen) show(p *picture) error {
	var text bytes.Buffer
	s.goBack(&text)
	lines := s.lines(p)
	for i, line := range lines {
		text.WriteString(escapeEraseRow)
		if s.bold && i == titleRow {
			line = escapeBold + line + escapePlain
		}
		fmt.Fprintln(&text, line)
	}
	text.WriteString(escapeErase)
	s.rows = len(lines)
	return output(text.Bytes())
}

// goBack puts the cursor where the last picture begins. If the terminal has another
// size by now, nobody knows where that is, and we begin at the top.
func (s *screen) goBack(text *bytes.Buffer) {
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

// lines is a picture as text: a heading, the table, and what went wrong. It leaves
// a row of the terminal to the cursor.
func (s *screen) lines(p *picture) []string {
	width, room := s.width-1, max(s.height-1, 1)
	lines := append([]string{cut(s.heading(p), width)}, table(p.locks, width)...)
	const least = 3 // heading, titles, and that there is more
	if most := max(room-len(p.errs), least); len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1], cut(fmt.Sprintf("and %d more", more), width))
	}
	for _, err := range p.errs {
		lines = append(lines, cut((&exit{err: err}).Error(), width))
	}
	return lines[:min(len(lines), room)]
}

func (s *screen) heading(p *picture) string {
	noun := "locks"
	if len(p.locks) == 1 {
		noun = "lock"
	}
	return fmt.Sprintf("%d %s in the %s store at %s, Ctrl-C to end", len(p.locks), noun, s.store, p.at.Format(time.TimeOnly))
}

// resume begins below what the shell has written meanwhile.
func (s *screen) resume() { s.rows = 0 }

// end wipes the ^C that the terminal has shown.
func (s *screen) end() { _, _ = s.out.WriteString("\r" + escapeErase) }
