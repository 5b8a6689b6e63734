package recipetest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen, on a machine that is
// busy with other things.
const patience = 60 * time.Second

// Eventually returns when the condition holds, which must come to pass.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			tb.Fatalf("after %v it is not so that %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// Rounds returns how often a long proof is to be repeated: what the variable
// HOLDFAST_ROUNDS says, or else a number that suits an ordinary run.
func Rounds(tb testing.TB, ordinary int) int {
	tb.Helper()
	text := os.Getenv("HOLDFAST_ROUNDS")
	if text == "" {
		return ordinary
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("HOLDFAST_ROUNDS is %q, want a number", text)
	}
	return n
}
