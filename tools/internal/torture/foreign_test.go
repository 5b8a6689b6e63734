//go:build unix

package torture

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// slowClient grants everything, after a delay.
type slowClient struct{ delay time.Duration }

func (c slowClient) Take(context.Context, string, string, time.Duration) (int64, bool, error) {
	time.Sleep(c.delay)
	return 0, true, nil
}

func (c slowClient) Free(context.Context, string, string) (bool, error) { return true, nil }

func (c slowClient) Close() {}

// A client of another kind that learns of a grant after its end does not rely on it.
func TestForeignGrantThatIsOver(t *testing.T) {
	for delay, want := range map[time.Duration][]Step{0: {Asks, Got, Releases, Released}, 200 * ms: nil} {
		path := filepath.Join(t.TempDir(), "log")
		l, err := openEventLog(path)
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{workerConfig: &workerConfig{Names: []string{"a"}, TTL: 100 * ms}, log: l, rng: rand.New(rand.NewPCG(1, 2))}
		w.runForeignAttempt(t.Context(), slowClient{delay})
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		var steps []Step
		if err := readEventLog(path, func(e Event) { steps = append(steps, e.Step) }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(steps, want) {
			t.Errorf("the answer took %v: %v", delay, steps)
		}
	}
}
