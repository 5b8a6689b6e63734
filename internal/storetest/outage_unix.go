//go:build unix

package storetest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Outage checks that a free name is never reported as held during an outage: not to a try, of which
// there are ten each second, and not to a waiter. The server, or a majority of them, is cut off for
// TEST_OUTAGE, 5 s if it is not set. A store without servers has no outages.
func Outage(t *testing.T, s *Store) {
	t.Helper()
	length, err := time.ParseDuration(os.Getenv("TEST_OUTAGE"))
	if err != nil {
		length = 5 * time.Second
	}
	if !s.Networked() {
		return
	}
	link := s.Link(t)
	c := s.OpenURL(t, link.URL, nil)
	if err := c.Do(t.Context(), "outage", nil, nothing); err != nil {
		t.Fatal(err)
	}
	link.Cut()
	var group sync.WaitGroup
	check := func(err error) {
		if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a call in the outage returns %v", err)
		}
	}
	group.Go(func() {
		_, err := c.Acquire(t.Context(), "outage", &holdfast.Options{Wait: length / 2})
		check(err)
	})
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range length / (100 * time.Millisecond) {
		<-tick.C
		group.Go(func() {
			_, err := c.TryAcquire(t.Context(), "outage", nil)
			check(err)
		})
	}
	group.Wait()
	link.Mend()
	if err := c.Do(t.Context(), "outage", &holdfast.Options{Wait: time.Minute}, nothing); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

func nothing(context.Context) error { return nil }
