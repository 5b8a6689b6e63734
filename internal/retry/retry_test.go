package retry

import (
	"math"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	const least, most = 100 * time.Millisecond, 3 * time.Second
	for try, want := range map[int]time.Duration{-1: least, 0: least, 1: 2 * least, 4: 16 * least, 5: most, 6: most, 1000: most, math.MaxInt: most} {
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := Backoff(try, least, most)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if shortest < want/2 || longest >= want || longest-shortest < want/4 {
			t.Errorf("try %d: %v to %v, want the upper half of %v", try, shortest, longest, want)
		}
	}
	if d := Backoff(63, math.MaxInt64/2, math.MaxInt64); d < math.MaxInt64/4 {
		t.Errorf("%v", d)
	}
}
