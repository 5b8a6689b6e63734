//go:build unix

package advisory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// What is released while there is no connection is not notified: watches are signalled
// when it is lost, and once more when there is another.
func TestWatchesAreSignalledAfterAGap(t *testing.T) {
	t.Parallel()
	s := &Store{}
	ctx, cancel := context.WithCancel(t.Context())
	listeners := make(chan *markListener, 1)
	s.watcher = newWatcher(ctx, func(ctx context.Context) (*markListener, error) {
		select {
		case l := <-listeners:
			return l, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	defer s.running.Wait()
	defer s.watcher.close()
	defer cancel()
	first := (&stubServer{}).listener(s)
	listeners <- first
	signals, err := s.watcher.watch(ctx, Key64(1).String())
	if err != nil {
		t.Fatal(err)
	}
	if len(signals) > 0 {
		t.Error("a watch that is in force from its beginning is signalled")
	}
	first.session.closeNow()
	pgtest.Signaled(t, signals)
	listeners <- (&stubServer{}).listener(s)
	pgtest.Signaled(t, signals)
}

// A server that does not reply delays a watch for a bounded time, even if its context has no end.
func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWatcher(ctx, func(context.Context) (*markListener, error) {
			<-ctx.Done() // The bound of the connection is not that of the watch.
			return nil, ctx.Err()
		})
		began := time.Now()
		_, err := w.watch(context.Background(), "name")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != pgclient.ListenTimeout {
			t.Errorf("a watch that is not answered: %v after %v, want an error after %v", err, took, pgclient.ListenTimeout)
		}
		if len(w.watchedNames()) != 0 {
			t.Error("what could not be watched is watched")
		}
		cancel()
		w.close()
	})
}
