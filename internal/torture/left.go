//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// patience is how long a store may be unavailable before and after a run: on a
// machine that is busy, an answer can be late.
const patience = 10 * time.Second

// patiently asks the store until it answers, or patience or ctx ends.
func patiently(ctx context.Context, ask func() error) error {
	for began := now(); ; {
		err := ask()
		if !errors.Is(err, holdfast.ErrUnavailable) || ctx.Err() != nil || now()-began > patience {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// left returns what the run has left in the store, when the TTLs of those who
// were killed have run out.
func (o *Options) left() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*o.TTL+10*time.Second)
	defer cancel()
	client, err := o.Open(ctx, o.Stores, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var left []string
	for _, name := range o.names() {
		err := patiently(ctx, func() error { return client.WaitFree(ctx, name) })
		switch {
		case errors.Is(err, holdfast.ErrUnsupported):
			return nil, nil
		case errors.Is(err, context.DeadlineExceeded):
			left = append(left, fmt.Sprintf("%s is held although all have ended", name))
		case err != nil:
			return nil, err
		}
	}
	return left, nil
}
