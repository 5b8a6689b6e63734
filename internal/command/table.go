package command

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// formatTable aligns the columns of a table whose first row is the titles. A column that has
// nothing but a title is left out. Lines are cut after the given number of characters, and all but
// the last cell of a row after two fifths of it, so that the columns behind are seen; 0 means not
// at all.
func formatTable(rows [][]string, most int) []byte {
	var out bytes.Buffer
	aligned := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		var cells []string
		for column, text := range row {
			if slices.ContainsFunc(rows[1:], func(other []string) bool { return other[column] != "" }) {
				cells = append(cells, text)
				if column < len(row)-1 {
					cells[len(cells)-1] = cutAfter(text, most*2/5)
				}
			}
		}
		_, _ = fmt.Fprintln(aligned, strings.Join(cells, "\t"))
	}
	_ = aligned.Flush() // to memory
	var cut bytes.Buffer
	for line := range strings.Lines(out.String()) {
		cut.WriteString(cutAfter(strings.TrimRight(line, " \n"), most) + "\n")
	}
	return cut.Bytes()
}

func cutAfter(text string, most int) string {
	if runes := []rune(text); most > 0 && len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// The columns of a table of locks. The last ones are cut on a narrow terminal.
const (
	nameColumn = iota
	holderColumn
	ageColumn
	leaseColumn
	waitingColumn
	tokenColumn
	metadataColumn
)

// lockRows returns the rows of a table of locks.
func lockRows(locks []lockview.Lock) [][]string {
	rows := [][]string{{"NAME", "HOLDER", "AGE", "LEASE", "WAITING", "TOKEN", "METADATA"}}
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
		lockview.Readable(rec.Name), lockview.Readable(rec.Holder), "-", lockview.TimeLeft(rec),
		"", "-", lockview.FormatMetadata(rec.Metadata),
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

// outputWidth returns how many characters fit on a line of f, 0 if it is no terminal. A terminal's
// last column stays free: terminals differ in where the cursor is after it.
func outputWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return max(width-1, 0)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
