//go:build unix

package page

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/bench/internal/result"
)

// withSpread formats a figure and, if it is charted and a median of rounds, the range of
// the rounds.
func withSpread(f result.Figure, m result.Metric) string {
	if !f.Known {
		return "–"
	}
	text := formatNumber(f.Value, m.Unit)
	if m.Chart && f.Min != f.Max {
		text += fmt.Sprintf(" (%s–%s)", formatNumber(f.Min, m.Unit), formatNumber(f.Max, m.Unit))
	}
	return text
}

// formatNumber formats a figure with its unit, as far as the title of the column does not
// contain it.
func formatNumber(x float64, unit result.Unit) string {
	switch unit {
	case result.Micros:
		return formatDuration(x)
	case result.Bytes:
		return formatSize(x)
	case result.Percent:
		return formatDigits(x) + " %"
	}
	return formatDigits(x)
}

func formatDuration(micros float64) string {
	switch {
	case micros >= 999_500:
		return formatDigits(micros/1e6) + " s"
	case micros >= 999.5:
		return formatDigits(micros/1e3) + " ms"
	}
	return formatDigits(micros) + " µs"
}

func formatSize(bytes float64) string {
	switch {
	case bytes >= 999_500:
		return formatDigits(bytes/1e6) + " MB"
	case bytes >= 9_999.5:
		return formatDigits(bytes/1e3) + " kB"
	}
	return formatDigits(bytes) + " B"
}

// formatDigits formats three significant digits, with commas between thousands.
func formatDigits(x float64) string {
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
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64) // It is a number.
	digits := strconv.FormatFloat(rounded, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// formatRatio formats a ratio.
func formatRatio(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f×", x)
	case x < 100:
		return fmt.Sprintf("%.1f×", x)
	}
	return fmt.Sprintf("%.0f×", x)
}

// ratioCell formats the ratio of a contender, in bold if Holdfast loses as far as the digits show.
// To Holdfast itself, of another size, it does not lose.
func ratioCell(c result.Contender, r float64) string {
	text := formatRatio(r)
	switch {
	case r == 0:
		return ""
	case strings.HasPrefix(text, "0") && !(c.Role == "ours" && c.Against != ""):
		return "**" + text + "**"
	}
	return text
}
