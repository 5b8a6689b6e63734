//go:build unix

package servers

import (
	"time"
)

// waitUntil returns when done reports true, and ends the test if that takes too long.
func waitUntil(tb TB, what string, done func() bool) {
	tb.Helper()
	deadline := time.Now().Add(startBound)
	for !done() {
		if time.Now().After(deadline) {
			tb.Fatalf("no %s after %v", what, startBound)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
