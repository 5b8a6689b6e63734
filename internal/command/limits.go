package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
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

// explainRefusal adds to err how much of the lock others hold, if they are several or hold slots.
// The refusal itself names one holder.
func (l *limitFlags) explainRefusal(ctx context.Context, client *holdfast.Client, name string, err error) error {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	rec, lookupErr := client.Lookup(ctx, name)
	if lookupErr != nil {
		return err
	}
	used := 0
	for _, hold := range lockview.EachHold(rec) {
		if hold.Limit > 0 {
			used++
		}
	}
	switch n := 1 + len(rec.Others); {
	case l.limit > 0 && rec.Limit > 0 && rec.Waiting > 0 && used < l.limit:
		return fmt.Errorf("%w; %s free, but a waiter is in front", err, slots(l.limit-used))
	case l.limit > 0 && rec.Limit > 0 && used > 0:
		return fmt.Errorf("%w; %s in use, and --limit is %d", err, slots(used), l.limit)
	case n > 1:
		return fmt.Errorf("%w; %d hold it", err, n)
	}
	return err
}

func slots(n int) string {
	if n == 1 {
		return "1 slot is"
	}
	return fmt.Sprint(n, " slots are")
}

// explainTimeout bounds the look at a lock that was refused.
const explainTimeout = 2 * time.Second

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
