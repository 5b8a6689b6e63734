package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
)

// longestSilence is how long a store may take for the next lock of a listing. The
// whole may take as long as there are locks.
const longestSilence = 10 * time.Second

var errSilent = fmt.Errorf("%w: no answer for %v", holdfast.ErrUnavailable, longestSilence)

// list returns the locks whose names begin with prefix, sorted by name, and the
// errors that were met. There may be both: a record that is damaged does not hide
// the others.
func list(ctx context.Context, client *holdfast.Client, prefix string) ([]holdfast.Record, []error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(longestSilence, func() { cancel(errSilent) })
	defer silence.Stop()

	var locks []holdfast.Record
	var errs []error
	for rec, err := range client.List(ctx, prefix) {
		silence.Reset(longestSilence)
		switch {
		case err == nil:
			locks = append(locks, rec)
		case errors.Is(context.Cause(ctx), errSilent):
			errs = append(errs, fmt.Errorf("list %q: %w", prefix, errSilent))
		default:
			errs = append(errs, err)
		}
	}
	sortByName(locks)
	return locks, errs
}

func sortByName(locks []holdfast.Record) {
	slices.SortFunc(locks, func(a, b holdfast.Record) int { return strings.Compare(a.Name, b.Name) })
}
