package command

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
)

// holdFlags are the flags of how to get a lock, and beside whom.
type holdFlags struct {
	wait   time.Duration
	try    bool // a single attempt
	shared bool
	limit  int
}

func (h *holdFlags) addTo(f *pflag.FlagSet, waitShorthand, tryShorthand string) {
	f.VarP(durationFlag{&h.wait, true}, "wait", waitShorthand, "how long to wait for the lock: a duration, 0 or forever")
	f.BoolVarP(&h.try, "try", tryShorthand, false, "do not wait for the lock, like --wait 0")
	f.BoolVarP(&h.shared, "shared", "s", false, "hold the lock together with others that do so: as a reader, where one without it is a writer")
	f.Func("limit", "hold the lock together with others, up to `N` of them: one of N slots", func(text string) (err error) {
		// Zero, which means an exclusive lock to package holdfast, is a mistake on a command line:
		// a script that computed it expects to be kept out.
		if h.limit, err = strconv.Atoi(text); err != nil || h.limit < 1 {
			return errors.New("want a whole number from 1 on")
		}
		return nil
	})
}

// check refuses flags that exclude each other, and sets try if a single attempt is to be made.
func (h *holdFlags) check(flags *pflag.FlagSet) error {
	waitFlag := flags.Lookup("wait")
	switch {
	case flags.Changed("try") && flags.Changed("wait"):
		return usageError(errors.New("--try and --wait exclude each other"), "one of them")
	case h.try && h.wait != 0 && !flags.Changed("try") && !flags.Changed("wait") && waitFlag.Value.String() != waitFlag.DefValue:
		return usageError(errors.New("HOLDFAST_TRY and HOLDFAST_WAIT exclude each other"), "one of them, or a flag, which wins")
	case h.shared && h.limit > 0:
		return usageError(errors.New("--shared and --limit exclude each other, given as flags or in HOLDFAST_SHARED and HOLDFAST_LIMIT"), "one of them")
	}
	h.try = h.try && !flags.Changed("wait") || h.wait == 0
	return nil
}

// acquire acquires a lock with these flags.
func (h *holdFlags) acquire(ctx context.Context, client *holdfast.Client, name string, o *holdfast.Options) (*holdfast.Lock, error) {
	o.Shared, o.Limit = h.shared, h.limit
	if h.try {
		return client.TryAcquire(ctx, name, o)
	}
	if h.wait != waitForever {
		o.Wait = h.wait
	}
	return client.Acquire(ctx, name, o)
}

// explain returns the error of an acquisition with its exit code.
func (h *holdFlags) explain(err error) *exitError {
	e := exitErrorFor(err)
	if e.code == exitBusy && !h.try {
		e.hint = "--wait with more time"
	}
	return e
}
