package storetest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// eventuallyTimeout is how long a test waits for a condition, on a machine that is busy
// with other things.
const eventuallyTimeout = 60 * time.Second

// Eventually returns when the condition holds. It fails the test if that takes too long.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.Now().Add(eventuallyTimeout)
	for !holds() {
		if time.Now().After(deadline) {
			tb.Fatalf("after %v it is not so that %s", eventuallyTimeout, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// Rounds returns how often a long test is to be repeated: the value of the variable
// TEST_ROUNDS, or else a number that suits an ordinary run.
func Rounds(tb testing.TB, ordinary int) int {
	tb.Helper()
	text := os.Getenv("TEST_ROUNDS")
	if text == "" {
		return ordinary
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("TEST_ROUNDS is %q, want a number", text)
	}
	return n
}
