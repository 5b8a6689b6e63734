package command

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// The reason of a stop comes before the error of the release, unless that error contains it.
func TestStopReason(t *testing.T) {
	unavailable := errors.New("release \"job\": store unavailable")
	lost := &holdfast.LostError{Name: "job", Reason: holdfast.ErrTaken}
	for _, c := range []struct {
		maxHold  time.Duration
		released error
		want     string
	}{
		{0, nil, "the lock could not be renewed in time"},
		{0, unavailable, `the lock could not be renewed in time (and release "job": store unavailable)`},
		{0, lost, lost.Error()},
		{time.Second, nil, "it had run for as long as --max-hold allows"},
		{time.Second, unavailable, `it had run for as long as --max-hold allows (and release "job": store unavailable)`},
	} {
		r := &runCommand{maxHold: c.maxHold}
		if got := r.stopReason(time.Second, c.released).Error(); got != c.want {
			t.Errorf("released with %v: %q, want %q", c.released, got, c.want)
		}
	}
}
