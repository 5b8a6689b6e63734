package command

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A fakeTerminal is the screen of a terminal. It knows the few escapes that the program uses,
// and no others.
type fakeTerminal struct {
	columns, rows int
	resized       bool // since the screen was last cleared: what comes may be for the old size
	cells         [][]rune
	row, column   int
	escape        []byte
	rest          []byte
	fault         string
}

func (f *fakeTerminal) write(data []byte) {
	for _, b := range data {
		switch {
		case len(f.escape) > 0:
			f.escape = append(f.escape, b)
			if b != '[' && b >= '@' {
				f.applyEscape(string(f.escape))
				f.escape = nil
			}
		case b == '\x1b':
			f.escape = []byte{b}
		case b == '\r':
			f.column = 0
		case b == '\n':
			f.row++
			if f.row == f.rows { // it scrolls
				f.cells = f.cells[1:]
				f.row--
			}
		default:
			f.putByte(b)
		}
		for len(f.cells) <= f.row {
			f.cells = append(f.cells, nil)
		}
	}
}

func (f *fakeTerminal) resize(columns, rows int) {
	f.resized = f.columns != columns || f.rows != rows
	f.columns, f.rows = columns, rows
}

// putByte shows a character when all of its bytes are there.
func (f *fakeTerminal) putByte(b byte) {
	f.rest = append(f.rest, b)
	text := string(f.rest)
	if !utf8.ValidString(text) {
		return
	}
	f.rest = nil
	for len(f.cells) <= f.row {
		f.cells = append(f.cells, nil)
	}
	line := f.cells[f.row]
	for len(line) <= f.column {
		line = append(line, ' ')
	}
	line[f.column] = []rune(text)[0]
	f.column++
	f.cells[f.row] = line
	if cellWidth(string(line)) > f.columns && !f.resized {
		f.fault = fmt.Sprintf("longer than %d: %q", f.columns, string(line))
	}
}

func (f *fakeTerminal) applyEscape(escape string) {
	var up int
	switch {
	case escape == "\x1b[K":
		if f.row < len(f.cells) && f.column < len(f.cells[f.row]) {
			f.cells[f.row] = f.cells[f.row][:f.column]
		}
	case escape == "\x1b[J":
		f.applyEscape("\x1b[K")
		if f.row+1 < len(f.cells) {
			f.cells = f.cells[:f.row+1]
		}
	case escape == "\x1b[H":
		f.row, f.column = 0, 0
	case escape == "\x1b[2J":
		f.cells, f.resized = nil, false
	case escape == "\x1b[1m", escape == "\x1b[2m", escape == "\x1b[m":
	case strings.HasSuffix(escape, "A"):
		_, err := fmt.Sscanf(escape, "\x1b[%dA", &up)
		if f.resized {
			up = min(up, f.row)
		}
		if err != nil || up > f.row {
			f.fault = fmt.Sprintf("escape %q in row %d", escape, f.row)
			return
		}
		f.row -= up
	default:
		f.fault = fmt.Sprintf("unknown escape %q", escape)
	}
}

// lines are the rows of the screen without trailing spaces.
func (f *fakeTerminal) lines() []string {
	var lines []string
	for _, row := range f.cells {
		lines = append(lines, strings.TrimRight(string(row), " "))
	}
	return lines
}
