//go:build unix

package once_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/once"
)

func TestMain(m *testing.M) {
	storetest.Main(m, map[string]storetest.Role{"hang": roleHang, "wait": roleWait})
}

// TestJobsOfManyReplicas: on every store, three replicas with four goroutines
// each go through the same jobs; each runs once.
func TestJobsOfManyReplicas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		const jobs = 10
		var runs [jobs]atomic.Int32
		var group sync.WaitGroup
		for _, locks := range s.Replicas(t, 3) {
			for range 4 {
				group.Go(func() {
					for i := range jobs {
						_, err := once.Do(t.Context(), locks, fmt.Sprint("job:", i), nil, func(context.Context) error {
							runs[i].Add(1)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		for i := range runs {
			if n := runs[i].Load(); n != 1 {
				t.Errorf("job %d ran %d times", i, n)
			}
		}
	})
}

// TestVerdicts: on every store, each verdict that depends on it.
func TestVerdicts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		ctx, replicas := t.Context(), s.Replicas(t, 2)
		slot := once.Slot{Start: time.Now(), End: time.Now().Add(time.Hour)}
		ours := errors.New("disk full")
		_, err := once.In(ctx, replicas[0], "job", slot, nil, func(ctx context.Context) error {
			result, err := once.In(ctx, replicas[1], "job", slot, nil, nothing)
			want(t, once.Busy, result, err)
			if result.Holder != replicas[0].Holder() {
				t.Errorf("busy with %q", result.Holder)
			}
			return ours
		})
		if err != ours {
			t.Error(err)
		}
		result, err := once.In(ctx, replicas[1], "job", slot, nil, nothing)
		want(t, once.Ran, result, err)
		result, err = once.In(ctx, replicas[0], "job", slot, nil, nothing)
		want(t, once.Done, result, err)
		if left := time.Until(result.Until); left < 59*time.Minute || left > 63*time.Minute {
			t.Errorf("done for %v more, want an hour and the skew", left)
		}
		slot.Start = slot.Start.Add(1)
		result, err = once.In(ctx, replicas[0], "job", slot, nil, nothing)
		want(t, once.Ran, result, err)
	})
}

// TestCrashedRunIsRepeated: on every store that processes share, a run whose
// process is killed is taken over by a waiter, unless it is to be run at most once.
func TestCrashedRunIsRepeated(t *testing.T) {
	storetest.EachShared(t, func(t *testing.T, s *storetest.Store) {
		for mode, verdict := range map[string]string{"again": "ran", "never": "done before"} {
			said := make(chan string, 10)
			hear := func(line string) { said <- line }
			first := storetest.Start(t, hear, "hang", s.URL(), mode)
			if line := <-said; line != "running" {
				t.Fatal(line)
			}
			storetest.Start(t, hear, "wait", s.URL(), mode)
			if line := <-said; line != "waiting" {
				t.Fatal(line)
			}
			first.Kill()
			if line := <-said; line != verdict {
				t.Errorf("%s: the second process says %q, want %q", mode, line, verdict)
			}
		}
	})
}

// call runs the job of the test as a process.
func call(args []string, wait time.Duration, work func(context.Context) error) (once.Result, error) {
	locks, err := holdfast.Open(context.Background(), args[0], nil)
	if err != nil {
		return once.Result{}, err
	}
	defer locks.Close()
	o := &once.Options{TTL: time.Second, Wait: wait, AtMostOnce: args[1] == "never"}
	return once.Do(context.Background(), locks, "job:"+args[1], o, work)
}

// roleHang runs the job and never ends.
func roleHang(args []string) error {
	_, err := call(args, 0, func(context.Context) error {
		fmt.Println("running")
		storetest.UntilEOF()
		return nil
	})
	return err
}

// roleWait waits for the job and prints the result.
func roleWait(args []string) error {
	fmt.Println("waiting")
	result, err := call(args, time.Minute, nothing)
	if err == nil {
		fmt.Println(result.Verdict)
	}
	return err
}
