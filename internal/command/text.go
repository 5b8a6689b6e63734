package command

import (
	"unicode"
	"unicode/utf8"
)

// wideRunes are the characters that take two cells on a terminal, as far as that matters for
// names.
var wideRunes = &unicode.RangeTable{
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

// cellWidth returns how many cells a text takes on a terminal.
func cellWidth(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wideRunes, r):
		return 2
	}
	return 1
}

// truncateCells shortens a text to at most most cells, and marks the cut with an ellipsis.
func truncateCells(text string, most int) string {
	if cellWidth(text) <= most {
		return text
	}
	n := 0
	for i, r := range text {
		if n += runeWidth(r); n > most-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// truncateMiddle shortens a text to at most most cells in the middle: names often differ at the
// end.
func truncateMiddle(text string, most int) string {
	if cellWidth(text) <= most {
		return text
	}
	tail := text
	for cellWidth(tail) > most/2 {
		_, size := utf8.DecodeRuneInString(tail)
		tail = tail[size:]
	}
	return truncateCells(text, most-cellWidth(tail)) + tail
}
