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

// listStallTimeout is how long a store may take for the next lock of a listing. The whole
// listing may take as long as there are locks.
const listStallTimeout = 10 * time.Second

var errListStalled = fmt.Errorf("%w: no answer for %v", holdfast.ErrUnavailable, listStallTimeout)

// listLocks returns the locks with names that begin with prefix, sorted by name, and the errors
// that occurred. There may be both: a damaged record does not hide the others.
func listLocks(ctx context.Context, client *holdfast.Client, prefix string) ([]holdfast.Record, []error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(listStallTimeout, func() { cancel(errListStalled) })
	defer silence.Stop()

	var locks []holdfast.Record
	var errs []error
	for rec, err := range client.List(ctx, prefix) {
		silence.Reset(listStallTimeout)
		switch {
		case err == nil:
			locks = append(locks, rec)
		case errors.Is(context.Cause(ctx), errListStalled):
			errs = append(errs, fmt.Errorf("list %q: %w", prefix, errListStalled))
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
