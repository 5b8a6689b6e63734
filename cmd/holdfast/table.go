package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
)

// unlimited is the width of what is not a terminal.
const unlimited = 1 << 20

// The columns of a table of locks.
const (
	nameColumn = iota
	holderColumn
	tokenColumn
	ageColumn
	leftColumn
	metadataColumn
	columnCount
)

type row [columnCount]string

var titles = row{"NAME", "HOLDER", "TOKEN", "AGE", "LEFT", "METADATA"}

// gap is the room between two columns.
const gap = 2

// table is a line of titles and a line for each lock, none longer than width.
func table(locks []holdfast.Record, width int) []string {
	rows := []row{titles}
	metadata := false
	for _, rec := range locks {
		rows = append(rows, rowOf(rec))
		metadata = metadata || len(rec.Metadata) > 0
	}
	if !metadata {
		rows[0][metadataColumn] = ""
	}
	w := fit(rows, width)
	lines := make([]string, len(rows))
	for i, r := range rows {
		lines[i] = cut(r.line(w), width)
	}
	return lines
}

func rowOf(rec holdfast.Record) row {
	r := row{readable(rec.Name), readable(rec.Holder), "-", "-", "-", pairs(rec.Metadata)}
	switch {
	case rec.Kept:
		r[holderColumn] = "(kept)"
	case rec.Holder == "":
		r[holderColumn] = "(unknown)"
	}
	if rec.Token > 0 {
		r[tokenColumn] = strconv.FormatInt(rec.Token, 10)
	}
	if d, ok := age(rec); ok {
		r[ageColumn] = brief(d)
	}
	if rec.Remaining > 0 {
		r[leftColumn] = brief(rec.Remaining)
	}
	return r
}

// widths are those of the columns; a column of no width is left out.
type widths [columnCount]int

// fit chooses the widths so that a line fits, if that can be done. What people
// look for is cut last.
func fit(rows []row, width int) widths {
	var w widths
	for column := range w {
		for _, r := range rows {
			w[column] = max(w[column], cells(r[column]))
		}
	}
	w.shrink(metadataColumn, 8, width)
	w.shrink(nameColumn, 24, width)
	w.shrink(holderColumn, 12, width)
	w.shrink(nameColumn, 12, width)
	if w.total() > width {
		w[metadataColumn] = 0
	}
	w.shrink(holderColumn, 4, width)
	w.shrink(nameColumn, 4, width)
	return w
}

// shrink takes from a column what a line has too much, as long as it keeps the
// least that it needs.
func (w *widths) shrink(column, least, width int) {
	w[column] -= max(min(w.total()-width, w[column]-least), 0)
}

func (w *widths) total() int {
	total := -gap
	for _, n := range w {
		if n > 0 {
			total += n + gap
		}
	}
	return total
}

func (r *row) line(w widths) string {
	var b strings.Builder
	for column, text := range r {
		if w[column] == 0 {
			continue
		}
		text = cut(text, w[column])
		b.WriteString(text)
		b.WriteString(strings.Repeat(" ", w[column]-cells(text)+gap))
	}
	return strings.TrimRight(b.String(), " ")
}

// widthOf is how long a line on f may be. A terminal's last column is left free:
// not all of them agree on where the cursor is after it.
func widthOf(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return unlimited
	}
	return width - 1
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
