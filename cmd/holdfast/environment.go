package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// applyEnvironment gives flags that are not on the command line the value of
// their twin in the environment, if there is one: HOLDFAST_KILL_AFTER for
// --kill-after. A variable that is set to nothing counts as not set. A flag that may be given several times
// has all its values in the one variable.
func applyEnvironment(flags *pflag.FlagSet) error {
	var failure error
	flags.VisitAll(func(f *pflag.Flag) {
		name := twin(f.Name)
		value := os.Getenv(name)
		if f.Changed || value == "" || f.Name == "help" || f.Name == "version" {
			return
		}
		set := f.Value.Set
		if list, ok := f.Value.(interface{ SetList(string) error }); ok {
			set = list.SetList
		}
		if err := set(value); err != nil && failure == nil {
			failure = usage(fmt.Errorf("environment variable %s: %w", name, err), "")
		}
	})
	return failure
}

// twin is the name of the environment variable that stands for a flag.
func twin(flag string) string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
