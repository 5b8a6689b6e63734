package command

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// unlimitedWidth is the width of an output that is not a terminal.
const unlimitedWidth = 1 << 20

// The columns of a table of locks.
const (
	nameColumn = iota
	holderColumn
	tokenColumn
	ageColumn
	leftColumn
	waitingColumn
	metadataColumn
	columnCount
)

type tableRow [columnCount]string

var tableTitles = tableRow{"NAME", "HOLDER", "TOKEN", "AGE", "LEFT", "WAITING", "METADATA"}

// columnGap is the space between two columns.
const columnGap = 2

// tableLines returns a line of titles and a line for each lock, none longer than width.
func tableLines(locks []lockview.Lock, width int) []string {
	rows := []tableRow{tableTitles}
	metadata, waiting := false, false
	for _, lock := range locks {
		rec := lock[0]
		row := recordRow(rec)
		if text := lock.Usage(); text != "" {
			row[holderColumn] = text + ": " + row[holderColumn]
		}
		rows = append(rows, row)
		metadata = metadata || len(rec.Metadata) > 0
		waiting = waiting || rec.Waiting > 0
	}
	if !metadata {
		rows[0][metadataColumn] = ""
	}
	if !waiting {
		rows[0][waitingColumn] = ""
	}
	w := fitWidths(rows, width)
	lines := make([]string, len(rows))
	for i, r := range rows {
		lines[i] = truncateCells(r.formatLine(w), width)
	}
	return lines
}

func recordRow(rec holdfast.Record) tableRow {
	r := tableRow{lockview.Readable(rec.Name), lockview.Readable(rec.Holder), "-", "-", lockview.TimeLeft(rec), "", lockview.FormatMetadata(rec.Metadata)}
	switch {
	case rec.Kept:
		r[holderColumn] = "(kept)"
	case rec.Holder == "":
		r[holderColumn] = "(unknown)"
	}
	if rec.Token > 0 {
		r[tokenColumn] = strconv.FormatInt(rec.Token, 10)
	}
	if rec.Waiting > 0 {
		r[waitingColumn] = strconv.Itoa(rec.Waiting)
	}
	if d, ok := lockview.Age(rec); ok {
		r[ageColumn] = lockview.ShortDuration(d)
	}
	return r
}

// fitWidths chooses the widths of the columns so that a line fits, if that is possible. The columns
// that readers look for are cut last, and the others left out before. A column of width 0 is left
// out.
func fitWidths(rows []tableRow, width int) (w [columnCount]int) {
	var full [columnCount]int
	for column := range full {
		for _, r := range rows {
			full[column] = max(full[column], cellWidth(r[column]))
		}
	}
	excess := func() int {
		total := -columnGap
		for _, n := range w {
			if n > 0 {
				total += n + columnGap
			}
		}
		return total - width
	}
	shrink := func(column, least int) { w[column] -= max(min(excess(), w[column]-least), 0) }
	for _, leftOut := range [][]int{{}, {metadataColumn}, {metadataColumn, tokenColumn}} {
		w = full
		for _, column := range leftOut {
			w[column] = 0
		}
		shrink(metadataColumn, 8)
		shrink(holderColumn, 12)
		if excess() <= 0 {
			return w
		}
	}
	shrink(nameColumn, 12)
	shrink(holderColumn, 4)
	shrink(nameColumn, 4)
	return w
}

func (r *tableRow) formatLine(w [columnCount]int) string {
	var b strings.Builder
	for column, text := range r {
		if w[column] == 0 {
			continue
		}
		if column == nameColumn {
			text = truncateMiddle(text, w[column])
		}
		text = truncateCells(text, w[column])
		b.WriteString(text)
		b.WriteString(strings.Repeat(" ", w[column]-cellWidth(text)+columnGap))
	}
	return strings.TrimRight(b.String(), " ")
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
