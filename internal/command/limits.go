package command

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
)

// limitFlags are the flags for a lock that several can hold at once.
type limitFlags struct {
	shared bool
	limit  int
}

func (l *limitFlags) addTo(f *pflag.FlagSet) {
	f.BoolVarP(&l.shared, "shared", "s", false, "hold the lock together with others that do so:\n"+
		"as a reader, where one without it is a writer")
	slotCountVar(f, &l.limit, "limit", "hold the lock together with others, up to `N`\n"+
		"of them: one of N slots")
}

// check refuses flags that exclude each other, in their own names.
func (l *limitFlags) check() error {
	if l.shared && l.limit > 0 {
		return usageError(errors.New("--shared and --limit exclude each other, given as flags or in HOLDFAST_SHARED and HOLDFAST_LIMIT"), "one of them")
	}
	return nil
}

func (l *limitFlags) apply(o *holdfast.Options) {
	o.Shared, o.Limit = l.shared, l.limit
}

// slotCountVar defines --limit. Zero, which means an exclusive lock to package
// holdfast, is a mistake on a command line: a script that computed it expects to be kept out.
func slotCountVar(f *pflag.FlagSet, p *int, name, usage string) {
	f.Var(&flagValue{
		set: func(text string) error {
			value, err := strconv.Atoi(text)
			if err != nil || value < 1 {
				return errors.New("want a whole number from 1 on")
			}
			*p = value
			return nil
		},
		text:     func() string { return strconv.Itoa(*p) },
		typeName: "int",
	}, name, usage)
}
