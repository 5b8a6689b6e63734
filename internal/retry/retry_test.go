package retry

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Second); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := Sleep(ctx, time.Hour); err != context.DeadlineExceeded || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for _, d := range []time.Duration{-1, 0, 1, math.MaxInt64} {
			if err := Sleep(ctx, d); err != context.DeadlineExceeded || time.Since(began) > time.Minute+1 {
				t.Errorf("after the end of ctx, %v: %v after %v", d, err, time.Since(began))
			}
		}
		if err := Sleep(t.Context(), -time.Second); err != nil {
			t.Errorf("no time: %v", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	const least, most = 100 * time.Millisecond, 3 * time.Second
	for try, want := range map[int]time.Duration{0: least, 1: 2 * least, 4: 16 * least, 5: most, 6: most, 1000: most, math.MaxInt: most} {
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := Backoff(try, least, most)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if shortest < want/2 || longest >= want || longest-shortest < want/4 {
			t.Errorf("try %d: %v to %v, want the upper half of %v", try, shortest, longest, want)
		}
	}
	for _, d := range []time.Duration{-1, 0, 1} {
		if got := HalfJitter(d); got != d {
			t.Errorf("half of %v: %v", d, got)
		}
	}
	if d := Backoff(63, math.MaxInt64/2, math.MaxInt64); d < math.MaxInt64/4 {
		t.Errorf("%v", d)
	}
}
