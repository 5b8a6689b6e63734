// Package retry has what a loop needs that tries again: a sleep that a context ends, and random
// pauses that grow.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep returns after d. It returns the error of ctx if ctx ends first, or has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Backoff returns the pause before the try with this number, which counts from 0: a random duration
// from the upper half of least, doubled for each try before it up to most. So clients that begin
// together do not stay together.
func Backoff(try int, least, most time.Duration) time.Duration {
	d := most
	if shift := min(max(try, 0), 62); least <= most>>shift {
		d = least << shift
	}
	return d/2 + rand.N(d/2)
}
