package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A glass is what a terminal shows. It knows the few escapes that we use, and no
// others.
type glass struct {
	columns, rows int
	cells         [][]rune
	row, column   int
	escape        []byte
	rest          []byte
	fault         string
}

func (g *glass) write(data []byte) {
	for _, b := range data {
		switch {
		case len(g.escape) > 0:
			g.escape = append(g.escape, b)
			if b != '[' && b >= '@' {
				g.obey(string(g.escape))
				g.escape = nil
			}
		case b == '\x1b':
			g.escape = []byte{b}
		case b == '\r':
			g.column = 0
		case b == '\n':
			g.row++
			if g.row == g.rows { // it scrolls
				g.cells = g.cells[1:]
				g.row--
			}
		default:
			g.put(b)
		}
		for len(g.cells) <= g.row {
			g.cells = append(g.cells, nil)
		}
	}
}

// put shows a character when all of its bytes are there.
func (g *glass) put(b byte) {
	g.rest = append(g.rest, b)
	text := string(g.rest)
	if !utf8.ValidString(text) {
		return
	}
	g.rest = nil
	for len(g.cells) <= g.row {
		g.cells = append(g.cells, nil)
	}
	line := g.cells[g.row]
	for len(line) <= g.column {
		line = append(line, ' ')
	}
	line[g.column] = []rune(text)[0]
	g.column++
	g.cells[g.row] = line
	if cells(string(line)) > g.columns {
		g.fault = fmt.Sprintf("longer than %d: %q", g.columns, string(line))
	}
}

func (g *glass) obey(escape string) {
	var up int
	switch {
	case escape == "\x1b[K":
		if g.row < len(g.cells) && g.column < len(g.cells[g.row]) {
			g.cells[g.row] = g.cells[g.row][:g.column]
		}
	case escape == "\x1b[J":
		g.obey("\x1b[K")
		if g.row+1 < len(g.cells) {
			g.cells = g.cells[:g.row+1]
		}
	case escape == "\x1b[H":
		g.row, g.column = 0, 0
	case escape == "\x1b[2J":
		g.cells = nil
	case escape == "\x1b[1m", escape == "\x1b[m":
	case strings.HasSuffix(escape, "A"):
		if _, err := fmt.Sscanf(escape, "\x1b[%dA", &up); err != nil || up > g.row {
			g.fault = fmt.Sprintf("escape %q in row %d", escape, g.row)
			return
		}
		g.row -= up
	default:
		g.fault = fmt.Sprintf("unknown escape %q", escape)
	}
}

// lines are the rows of the screen without trailing spaces.
func (g *glass) lines() []string {
	var lines []string
	for _, row := range g.cells {
		lines = append(lines, strings.TrimRight(string(row), " "))
	}
	return lines
}
