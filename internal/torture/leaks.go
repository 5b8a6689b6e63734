//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// availabilityTimeout is how long a store may be unavailable before and after a run. While the
// disk of the machine is busy, a server can stall for a while.
const availabilityTimeout = time.Minute

// untilAvailable repeats call while its error is ErrUnavailable, until availabilityTimeout
// or ctx ends.
func untilAvailable(ctx context.Context, call func() error) error {
	for started := now(); ; {
		err := call()
		if !errors.Is(err, holdfast.ErrUnavailable) || ctx.Err() != nil || now()-started > availabilityTimeout {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// findLeaks returns the locks that the run has left behind in the store. It waits until the
// TTLs of the processes that were killed have run out.
func (o *Options) findLeaks() ([]string, error) {
	ctx := context.Background()
	client, err := o.Open(ctx, o.Stores, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var leaks []string
	for _, name := range o.lockNames() {
		err := untilAvailable(ctx, func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*o.TTL+10*time.Second)
			defer cancel()
			return client.WaitFree(ctx, name)
		})
		switch {
		case errors.Is(err, holdfast.ErrUnsupported):
			return nil, nil
		case errors.Is(err, context.DeadlineExceeded):
			leaks = append(leaks, fmt.Sprintf("%s is held although all have ended", name))
		case err != nil:
			return nil, err
		}
	}
	return leaks, nil
}
