package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// readable shows a text of somebody else's making, with whatever a terminal might
// take for a command spelt out.
func readable(text string) string {
	if !strings.ContainsFunc(text, strange) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if piece := text[:size]; strange(r) {
			quoted := strconv.QuoteToASCII(piece)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(piece)
		}
		text = text[size:]
	}
	return b.String()
}

func strange(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// pairs shows metadata on one line.
func pairs(metadata map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		value := metadata[key]
		if value == "" || strings.ContainsAny(value, ` "`) {
			value = strconv.Quote(value)
		}
		words = append(words, readable(key)+"="+readable(value))
	}
	return strings.Join(words, " ")
}

// brief shows a duration by its two greatest units, rounded down.
func brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// wide are the characters that take two cells on a terminal, as far as that
// matters for names.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x23e9, 0x23ec, 1}, {0x25fd, 0x25fe, 1},
		{0x2614, 0x2615, 1}, {0x2648, 0x2653, 1}, {0x26a1, 0x26a1, 1}, {0x26bd, 0x26be, 1},
		{0x26d4, 0x26d4, 1}, {0x2705, 0x2705, 1}, {0x274c, 0x274e, 2}, {0x2753, 0x2757, 1},
		{0x2b50, 0x2b55, 5}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1}, {0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{
		{0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f7e0, 0x1f7eb, 1}, {0x1f900, 0x1faff, 1},
		{0x20000, 0x3fffd, 1},
	},
}

// cells is how much room a text takes on a terminal.
func cells(text string) int {
	n := 0
	for _, r := range text {
		n += cellsOf(r)
	}
	return n
}

func cellsOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// cut shortens a text to so many cells, and marks that it did.
func cut(text string, most int) string {
	if cells(text) <= most {
		return text
	}
	n := 0
	for i, r := range text {
		if n += cellsOf(r); n > most-1 {
			return text[:i] + "…"
		}
	}
	return text
}
