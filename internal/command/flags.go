package command

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/driver"
)

var errDuration = errors.New(`want a duration such as "30s", "5m" or "1d"; a number alone is seconds`)

// parseDuration accepts what time.ParseDuration does, or a number of seconds, or a number of days
// ("1d") with or without a rest ("1d12h").
func parseDuration(text string) (time.Duration, error) {
	if strings.Trim(text, "+-.0123456789") == "" {
		text += "s"
	}
	if days, rest, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil {
			return 0, errDuration
		}
		text = strconv.FormatFloat(24*n, 'f', -1, 64) + "h" + rest
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errDuration
	}
	return d, nil
}

// A durationFlag is a flag of a duration. It implements [pflag.Value].
type durationFlag struct {
	value *time.Duration
	wait  bool // it bounds a wait, and may be waitForever
}

// waitForever is the value of --wait without a limit.
const waitForever time.Duration = -1

func (f durationFlag) Set(text string) (err error) {
	if f.wait && text == "forever" {
		*f.value = waitForever
		return nil
	}
	d, err := parseDuration(text)
	if f.wait && (err != nil || d < 0) {
		return errors.New(`want a duration such as "30s", "0" or "forever"; a number alone is seconds`)
	}
	if err == nil {
		*f.value = d
	}
	return err
}

func (f durationFlag) String() string {
	switch {
	case f.wait && *f.value == waitForever:
		return "forever"
	case *f.value == 0:
		return "0"
	}
	return f.value.String()
}

func (durationFlag) Type() string { return "duration" }

// durationVar defines a flag of a duration.
func durationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var(durationFlag{p, false}, name, usage)
}

// checkDuration refuses the value of a flag that is below least, or longer than anything a store
// keeps.
func checkDuration(flag string, d, least time.Duration) error {
	if d < least || d > driver.MaxTTL {
		return usageError(fmt.Errorf("--%s %v is not between %v and %v", flag, d, least, driver.MaxTTL), "another duration")
	}
	return nil
}

func checkTTL(ttl time.Duration) error { return checkDuration("ttl", ttl, driver.MinTTL) }

// metaUsage is the help of --meta.
const metaUsage = "`KEY=VALUE` to show with the lock, to all users; may be repeated, at most 16 of 1024 bytes in all"

// A metadata is the value of --meta.
type metadata map[string]string

// set adds a key and its value: all that follows the first "=", whatever is in it.
func (m metadata) set(text string) error {
	key, value, found := strings.Cut(text, "=")
	if !found {
		return errors.New("want KEY=VALUE")
	}
	m[key] = value
	return nil
}

// applyEnvironment sets the flags that are not on the command line from their variables in the
// environment, if there are any: HOLDFAST_KILL_AFTER for --kill-after. An empty variable counts
// as not set, except HOLDFAST_STORE, which counts as an empty URL. HOLDFAST_STORE has spaces
// between its URLs, and HOLDFAST_META has a line for each value.
func applyEnvironment(flags *pflag.FlagSet) error {
	var failure error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envVar(f.Name)
		value, found := os.LookupEnv(name)
		if f.Changed || !found || value == "" && f.Name != "store" || slices.Contains(ownVariables, name) {
			return
		}
		values := []string{value}
		if f.Name == "meta" {
			values = strings.FieldsFunc(value, func(r rune) bool { return r == '\n' })
		} else if urls := strings.Fields(value); f.Name == "store" && len(urls) > 0 {
			values = urls
		}
		for _, value := range values {
			err := f.Value.Set(value)
			if err != nil && f.Value.Type() == "bool" {
				err = fmt.Errorf("%q is neither true nor false", value)
			}
			if err != nil && failure == nil {
				failure = usageError(fmt.Errorf("environment variable %s: %w", name, err), "--"+f.Name+", or unset "+name)
			}
		}
	})
	return failure
}

// ownVariables are no twins of flags: what "run" sets, the ticket, and what is for a command line
// alone.
var ownVariables = []string{
	"HOLDFAST_NAME", "HOLDFAST_TOKEN", "HOLDFAST_HOLDER", "HOLDFAST_SUPERVISOR", "HOLDFAST_TICKET", "HOLDFAST_HELP", "HOLDFAST_VERSION",
}

// unknownVariables returns the variables of the environment that look like flags and are none,
// sorted: with HOLDFAST_URL for HOLDFAST_STORE, each host would lock alone.
func unknownVariables() []string {
	var unknown []string
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "HOLDFAST_") && value != "" && !slices.Contains(ownVariables, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	known := map[string]bool{}
	add := func(f *pflag.Flag) { known[envVar(f.Name)] = true }
	root := newRoot(&cli{}, nil)
	root.PersistentFlags().VisitAll(add)
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(add)
	}
	// Kubernetes sets these for a service with the name holdfast, or one that begins so.
	service := regexp.MustCompile(`^HOLDFAST_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$`)
	slices.Sort(unknown)
	return slices.DeleteFunc(unknown, func(name string) bool { return known[name] || service.MatchString(name) })
}

// envVar returns the name of the environment variable of a flag.
func envVar(flag string) string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
