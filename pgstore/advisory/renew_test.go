package advisory

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A session that hangs hides no outcome of another one.
func TestOutcomesBesideAHungSession(t *testing.T) {
	s := New(nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // The order of the sessions is random.
		healthy := &renewal{result: make(chan error, 1), parts: []renewalPart{{index: 1, outcome: driver.Renewed}}}
		healthy.result <- nil
		hung := &renewal{result: make(chan error, 1), parts: []renewalPart{{index: 0, outcome: driver.Renewed}}}
		outcomes := make([]driver.RenewOutcome, 2)
		err := s.collectOutcomes(ctx, map[*session]*renewal{{}: healthy, {pid: 1}: hung}, outcomes)
		if err == nil || outcomes[0] != driver.RenewUnknown || outcomes[1] != driver.Renewed {
			t.Fatalf("outcomes %v, %v, want the healthy session's", outcomes, err)
		}
	}
}
