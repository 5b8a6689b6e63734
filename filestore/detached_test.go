package filestore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestDetachedHold: a detached hold stays when its process is killed, through a
// sweep too, and belongs to any process that knows its owner.
func TestDetachedHold(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	c := start(t, command("detach", dir, "name", "secret"))
	c.number()
	c.kill()
	s.sweepIdle(t.Context(), 0)
	refused(t, openTest(t, dir), "name")
	req := driver.AcquireRequest{Name: "name", Owner: "secret", TTL: time.Hour}
	outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: req.TTL}})
	if err != nil || outcomes[0] != driver.Renewed {
		t.Fatalf("Renew: %v, %v", outcomes, err)
	}
	if rec := readRecord(t, s, "name"); !rec.detached() {
		t.Errorf("the renewed hold depends on the session %s", rec.Session)
	}
	released(t, s, req)
	granted(t, s, "name", time.Hour)
}

// roleDetach takes a name for an owner, detached, and waits.
func roleDetach(args []string) error {
	s, err := New(args[0], nil)
	if err != nil {
		return err
	}
	req := driver.AcquireRequest{Name: args[1], Owner: args[2], Holder: "holder", TTL: time.Hour, Detached: true}
	res, err := s.Acquire(context.Background(), req)
	if err != nil || !res.Granted {
		return fmt.Errorf("not granted: %w", err)
	}
	fmt.Println(res.Token)
	return awaitEOF()
}
