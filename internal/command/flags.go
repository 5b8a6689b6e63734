package command

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/internal/supervise"
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

// waitForever is the waitLimit without a limit.
const waitForever waitLimit = -1

// A waitLimit is the value of --wait.
type waitLimit time.Duration

func (p *waitLimit) Set(text string) error {
	if text == "forever" {
		*p = waitForever
		return nil
	}
	d, err := parseDuration(text)
	if err != nil || d < 0 {
		return errors.New(`want a duration such as "30s", "0" or "forever"; a number alone is seconds`)
	}
	*p = waitLimit(d)
	return nil
}

func (p *waitLimit) String() string {
	if *p == waitForever {
		return "forever"
	}
	return time.Duration(*p).String()
}

func (p *waitLimit) Type() string { return "duration" }

// resolveTry reports whether a single attempt is made for the lock, given --try and --wait.
func resolveTry(flags *pflag.FlagSet, try bool, wait waitLimit) (bool, error) {
	if flags.Changed("try") && flags.Changed("wait") {
		return false, usageError(errors.New("--try and --wait exclude each other"), "one of them")
	}
	return try && !flags.Changed("wait") || wait == 0, nil
}

// A lossPolicy is the value of --on-lost.
type lossPolicy supervise.Policy

var lossPolicies = map[string]supervise.Policy{
	"kill":   supervise.Kill,
	"term":   supervise.Term,
	"ignore": supervise.Ignore,
}

func (p *lossPolicy) Set(text string) error {
	value, ok := lossPolicies[text]
	if !ok {
		return errors.New("want kill, term or ignore")
	}
	*p = lossPolicy(value)
	return nil
}

func (p *lossPolicy) String() string {
	for text, value := range lossPolicies {
		if lossPolicy(value) == *p {
			return text
		}
	}
	return ""
}

func (p *lossPolicy) Type() string { return "policy" }

// applyEnvironment sets the flags that are not on the command line from their variables in the
// environment, if there are any: HOLDFAST_KILL_AFTER for --kill-after. An empty variable counts
// as not set. A flag that may be given several times has all its values in the one variable,
// and gets it even if it is empty.
func applyEnvironment(flags *pflag.FlagSet) error {
	var failure error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envVar(f.Name)
		value, found := os.LookupEnv(name)
		set := f.Value.Set
		list, isList := f.Value.(interface{ SetList(string) error })
		if isList {
			set = list.SetList
		}
		if f.Changed || !found || value == "" && !isList || f.Name == "help" || f.Name == "version" {
			return
		}
		if err := set(value); err != nil && failure == nil {
			failure = usageError(fmt.Errorf("environment variable %s: %w", name, err), "")
		}
	})
	return failure
}

// envVar returns the name of the environment variable of a flag.
func envVar(flag string) string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
