package command

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
)

// limitFlags are the flags for a lock that several can hold at once.
type limitFlags struct {
	shared        bool
	limit, weight int
}

func (l *limitFlags) addTo(f *pflag.FlagSet) {
	f.BoolVarP(&l.shared, "shared", "s", false, "hold the lock together with others that do so:\n"+
		"as a reader, where one without it is a writer")
	f.Var((*slotCount)(&l.limit), "limit", "hold the lock together with others, up to `N`\n"+
		"of them: one of N slots")
	f.Var((*slotCount)(&l.weight), "weight", "how many of the --limit slots to take (default\n"+
		"1)")
}

func (l *limitFlags) apply(o *holdfast.Options) {
	o.Shared, o.Limit, o.Weight = l.shared, l.limit, l.weight
}

// A slotCount is the value of --limit and --weight. Zero, which means an exclusive lock to package
// holdfast, is a mistake on a command line: a script that computed it expects to be kept out.
type slotCount int

func (n *slotCount) Set(text string) error {
	value, err := strconv.Atoi(text)
	if err != nil || value < 1 {
		return errors.New("want a whole number from 1 on")
	}
	*n = slotCount(value)
	return nil
}

// String returns "0" for zero, for which the help shows no default.
func (n *slotCount) String() string { return strconv.Itoa(int(*n)) }

func (n *slotCount) Type() string { return "int" }
