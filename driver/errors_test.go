package driver

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// A RetryError is found behind wrappings, matches what it wraps, and says that
// nothing was changed.
func TestRetryError(t *testing.T) {
	cause := errors.New("LOADING")
	err := fmt.Errorf("node 1: %w", &RetryError{Err: cause, After: 1500 * time.Millisecond})
	var later *RetryError
	if !errors.As(err, &later) || later.After != 1500*time.Millisecond || !errors.Is(err, cause) {
		t.Errorf("%v is not found as what it is", err)
	}
	if !IsNotApplied(err) || Permanent(err) {
		t.Errorf("not applied %v, permanent %v", IsNotApplied(err), Permanent(err))
	}
	if want := "node 1: LOADING (try again in 1.5s)"; err.Error() != want {
		t.Errorf("it reads %q, want %q", err, want)
	}
	if err := (&RetryError{Err: cause}); err.Error() != "LOADING" {
		t.Errorf("without a time it reads %q", err)
	}
}
