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
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// HalfJitter returns a random duration from the upper half of d, so that clients that begin
// together do not stay together. It returns d if d is shorter than 2 ns.
func HalfJitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2)
}

// Backoff returns the pause before the try with this number, which counts from 0: the upper half
// of least, doubled for each try before it up to most.
func Backoff(try int, least, most time.Duration) time.Duration {
	d := least
	for range min(try, 63) {
		if d >= most/2 {
			d = most
			break
		}
		d *= 2
	}
	return HalfJitter(min(d, most))
}
