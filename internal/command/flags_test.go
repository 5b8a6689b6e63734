package command

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0.5": 500 * time.Millisecond, ".25": 250 * time.Millisecond, "0": 0, "-5": -5 * time.Second,
		"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour, "1.5d": 36 * time.Hour,
		"1d12h": 36 * time.Hour, "-1d12h": -36 * time.Hour, "365d": 365 * 24 * time.Hour, "1d0s": 24 * time.Hour,
	} {
		if got, err := parseDuration(text); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "d", "s", "soon", "1e3", "0x10", "inf", "NaN", "1d-1h", "1d1", "1dd", "1h1d", "1,5", "1 d", "99999999d",
		"106751d24h", "99999999999999999999", "--5", "5.5.5",
	} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}
