//go:build unix

package servers

import (
	"time"
)

// await returns when done reports true, and ends the test if that takes too
// long.
func await(tb TB, what string, done func() bool) {
	tb.Helper()
	deadline := time.Now().Add(startBound)
	for !done() {
		if time.Now().After(deadline) {
			tb.Fatalf("no %s after %v", what, startBound)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
