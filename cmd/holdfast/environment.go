package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

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
