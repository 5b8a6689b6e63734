package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A duration is the value of a flag: what time.ParseDuration accepts, or a number of seconds,
// or a number of days ("1d") with or without a rest ("1d12h").
type duration time.Duration

var errDuration = errors.New(`want a duration such as "30s", "5m" or "1d"; a number alone is seconds`)

func (d *duration) Set(text string) error {
	value, err := parseDuration(text)
	*d = duration(value)
	return err
}

// String returns "0" for zero, for which the help shows no default.
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }

func parseDuration(text string) (time.Duration, error) {
	if seconds, ok := parseDecimal(text); ok {
		return scaleDuration(seconds, time.Second)
	}
	number, rest, found := strings.Cut(text, "d")
	if !found {
		value, err := time.ParseDuration(text)
		if err != nil {
			return 0, errDuration
		}
		return value, nil
	}
	days, ok := parseDecimal(number)
	if !ok {
		return 0, errDuration
	}
	value, err := scaleDuration(days, 24*time.Hour)
	if err != nil || rest == "" {
		return value, err
	}
	more, err := time.ParseDuration(rest)
	if err != nil || rest[0] == '-' || rest[0] == '+' {
		return 0, errDuration
	}
	if days < 0 {
		more = -more
	}
	if sum := value + more; (sum < value) == (more < 0) {
		return sum, nil
	}
	return 0, errDuration
}

// parseDecimal reads a number without an exponent.
func parseDecimal(text string) (float64, bool) {
	if text == "" || strings.Trim(text, "+-.0123456789") != "" {
		return 0, false
	}
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil
}

func scaleDuration(number float64, unit time.Duration) (time.Duration, error) {
	value := math.Round(number * float64(unit))
	if math.Abs(value) >= math.MaxInt64 {
		return 0, errDuration
	}
	return time.Duration(value), nil
}

// durationVar defines a flag of a duration.
func durationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*duration)(p), name, usage)
}
