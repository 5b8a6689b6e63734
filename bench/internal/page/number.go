package page

import (
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/bench/internal/result"
)

// withSpread writes a figure and, if it is one of rounds that are charted,
// between which values they lie.
func withSpread(f result.Figure, m result.Metric) string {
	if !f.Known {
		return "–"
	}
	text := number(f.Value, m.Unit)
	if m.Chart && f.Min != f.Max {
		text += fmt.Sprintf(" (%s–%s)", number(f.Min, m.Unit), number(f.Max, m.Unit))
	}
	return text
}

// number writes a figure with its unit, as far as the column does not say it.
func number(x float64, unit result.Unit) string {
	switch unit {
	case result.Micros:
		return duration(x)
	case result.Bytes:
		return size(x)
	case result.Percent:
		return short(x) + " %"
	}
	return short(x)
}

func duration(micros float64) string {
	switch {
	case micros >= 999_500:
		return short(micros/1e6) + " s"
	case micros >= 999.5:
		return short(micros/1e3) + " ms"
	}
	return short(micros) + " µs"
}

func size(bytes float64) string {
	switch {
	case bytes >= 999_500:
		return short(bytes/1e6) + " MB"
	case bytes >= 9_999.5:
		return short(bytes/1e3) + " kB"
	}
	return short(bytes) + " B"
}

// short writes three digits that count, with commas between thousands.
func short(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.0995:
		return strconv.FormatFloat(x, 'g', 2, 64)
	case x < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x < 999.5:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64) // It has just been formatted.
	digits := strconv.FormatFloat(rounded, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
