package command

import (
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// unlimitedWidth is the width of an output that is not a terminal.
const unlimitedWidth = 1 << 20

// columnGap is the space between two columns.
const columnGap = 2

// A cut narrows a column of a table, to least cells at most. With 0 it leaves the column out.
type cut struct{ column, least int }

// tableLines returns a line for each row of a table, none longer than most. The first row is the
// titles. A column that has nothing but a title is left out. The cuts are made one after another
// until the lines fit.
func tableLines(rows [][]string, cuts []cut, most int) []string {
	widths, total := make([]int, len(rows[0])), -columnGap
	for column := range widths {
		for _, row := range rows[1:] {
			widths[column] = max(widths[column], cellWidth(row[column]))
		}
		if widths[column] > 0 {
			widths[column] = max(widths[column], cellWidth(rows[0][column]))
			total += widths[column] + columnGap
		}
	}
	for _, c := range cuts {
		switch w := widths[c.column]; {
		case total <= most || w <= c.least:
		case c.least == 0:
			widths[c.column] = 0
			total -= w + columnGap
		default:
			widths[c.column] = max(w-(total-most), c.least)
			total -= w - widths[c.column]
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		var line strings.Builder
		for column, w := range widths {
			if w > 0 {
				text := clip(row[column], w)
				line.WriteString(text)
				line.WriteString(strings.Repeat(" ", w-cellWidth(text)+columnGap))
			}
		}
		lines[i] = clip(strings.TrimRight(line.String(), " "), most)
	}
	return lines
}

// The columns of a table of locks.
const (
	nameColumn = iota
	holderColumn
	tokenColumn
	ageColumn
	leftColumn
	waitingColumn
	metadataColumn
)

// lockCuts leave the names whole as long as that is possible: readers look for them.
var lockCuts = []cut{
	{metadataColumn, 8}, {metadataColumn, 0}, {tokenColumn, 0},
	{holderColumn, 12}, {nameColumn, 12}, {holderColumn, 4}, {nameColumn, 4},
}

// lockRows returns the rows of a table of locks.
func lockRows(locks []lockview.Lock) [][]string {
	rows := [][]string{{"NAME", "HOLDER", "TOKEN", "AGE", "LEFT", "WAITING", "METADATA"}}
	for _, lock := range locks {
		row := recordRow(lock[0])
		if text := lock.Usage(); text != "" {
			row[holderColumn] = text + ": " + row[holderColumn]
		}
		rows = append(rows, row)
	}
	return rows
}

func recordRow(rec holdfast.Record) []string {
	row := []string{
		lockview.Readable(rec.Name), lockview.Readable(rec.Holder), "-", "-",
		lockview.TimeLeft(rec), "", lockview.FormatMetadata(rec.Metadata),
	}
	switch {
	case rec.Kept:
		row[holderColumn] = "(kept)"
	case rec.Holder == "":
		row[holderColumn] = "(unknown)"
	}
	if rec.Token > 0 {
		row[tokenColumn] = strconv.FormatInt(rec.Token, 10)
	}
	if rec.Waiting > 0 {
		row[waitingColumn] = strconv.Itoa(rec.Waiting)
	}
	if d, ok := lockview.Age(rec); ok {
		row[ageColumn] = lockview.ShortDuration(d)
	}
	return row
}

// outputWidth returns the maximum length of a line on f. A terminal's last column stays free:
// terminals differ in where the cursor is after it.
func outputWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return unlimitedWidth
	}
	return width - 1
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// cellWidth returns how many cells a text takes on a terminal.
func cellWidth(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
		return 2
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	}
	return 1
}

// clip shortens a text to most cells, in its middle, since names often differ at the end.
func clip(text string, most int) string {
	if cellWidth(text) <= most {
		return text
	}
	runes := []rune(text)
	i, j := 0, len(runes)
	for room := most/2 - runeWidth(runes[i]); room >= 0; room -= runeWidth(runes[i]) {
		i++
	}
	for room := (most-1)/2 - runeWidth(runes[j-1]); room >= 0; room -= runeWidth(runes[j-1]) {
		j--
	}
	return string(runes[:i]) + "…" + string(runes[j:])
}
