//go:build unix

package pgclient

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// stubListener is a connection that listens until it is cut.
type stubListener struct{ cut chan struct{} }

func (e stubListener) AddWaiterMark(context.Context, string) error { return nil }
func (e stubListener) RemoveWaiterMark(string)                     {}
func (e stubListener) ListenLoop(ctx context.Context) {
	select {
	case <-e.cut:
	case <-ctx.Done():
	}
}
func (e stubListener) Close() {}

// What is released while there is no connection is not notified: watches are signalled
// when it is lost, and once more when there is another.
func TestWatchesAreSignalledAfterAGap(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	listeners := make(chan stubListener, 1)
	w := NewWatcher(ctx, func(ctx context.Context) (Listener, error) {
		select {
		case e := <-listeners:
			return e, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	defer w.Close()
	defer cancel()
	first := stubListener{make(chan struct{})}
	listeners <- first
	signals, err := w.Watch(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	if len(signals) > 0 {
		t.Error("a watch that is in force from its beginning is signalled")
	}
	close(first.cut)
	pgtest.Signaled(t, signals)
	listeners <- stubListener{make(chan struct{})}
	pgtest.Signaled(t, signals)
}

// A server that does not reply delays a watch for a bounded time, even if its context has no end.
func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := NewWatcher(ctx, func(context.Context) (Listener, error) {
			<-ctx.Done() // The bound of the connection is not that of the watch.
			return nil, ctx.Err()
		})
		began := time.Now()
		_, err := w.Watch(context.Background(), "name")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != ListenTimeout {
			t.Errorf("a watch that is not answered: %v after %v, want an error after %v", err, took, ListenTimeout)
		}
		if len(w.WatchedNames()) != 0 {
			t.Error("what could not be watched is watched")
		}
		cancel()
		w.Close()
	})
}
