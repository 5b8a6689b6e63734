package lockview

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

// List returns the locks with names that begin with prefix, sorted by name, and the errors
// that occurred. There may be both: a damaged record does not hide the others.
func List(ctx context.Context, client *holdfast.Client, prefix string) ([]Lock, []error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(listStallTimeout, func() { cancel(errListStalled) })
	defer silence.Stop()

	var holds []holdfast.Record
	var errs []error
	for rec, err := range client.List(ctx, prefix) {
		silence.Reset(listStallTimeout)
		switch {
		case err == nil:
			holds = append(holds, rec)
		case errors.Is(context.Cause(ctx), errListStalled):
			errs = append(errs, fmt.Errorf("list: %w", errListStalled))
		default:
			errs = append(errs, err)
		}
	}
	slices.SortStableFunc(holds, func(a, b holdfast.Record) int { return strings.Compare(a.Name, b.Name) })
	var locks []Lock
	for len(holds) > 0 {
		n := slices.IndexFunc(holds, func(rec holdfast.Record) bool { return rec.Name != holds[0].Name })
		if n < 0 {
			n = len(holds)
		}
		locks = append(locks, NewLock(holds[:n]))
		holds = holds[n:]
	}
	return locks, errs
}
