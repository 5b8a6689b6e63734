package once

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
)

// EveryBy is Every by another wall clock.
func EveryBy(clock func() time.Time, ctx context.Context, locks *holdfast.Client, job string, period time.Duration, o *Options, work func(context.Context) error) (Result, error) {
	t := newTask(locks, job, o)
	t.now = clock
	return t.executeInSlot(ctx, Period(t.now(), period), work)
}
