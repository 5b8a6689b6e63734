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

// findLeaks returns the locks that the run has left behind in the store, whole or as shares. These
// are the locks that an exclusive attempt does not get after the TTLs of killed processes have run
// out.
func findLeaks(client *holdfast.Client, names []string, ttl time.Duration) ([]string, error) {
	ctx := context.Background()
	var leaks []string
	for _, name := range names {
		err := untilAvailable(ctx, func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*ttl+client.Guarantees().Grain+10*time.Second)
			defer cancel()
			lock, err := client.Acquire(ctx, name, &holdfast.Options{TTL: ttl})
			if err != nil {
				return err
			}
			return lock.Release()
		})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			leaks = append(leaks, fmt.Sprintf("%s is held although all have ended", name))
		case err != nil:
			return nil, err
		}
	}
	return leaks, nil
}
