//go:build unix

package filestore

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// TestStoppedHolder: the lock of a process that is stopped is free at its TTL
// and not before.
func TestStoppedHolder(t *testing.T) {
	const ttl = 300 * time.Millisecond
	dir := t.TempDir()
	s := openTest(t, dir)
	asked := time.Now()
	c := start(t, command("hold", dir, "name", ttl.String()))
	c.number()
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	eventually(t, "the name is free", func() bool {
		res, err := s.Acquire(ctx, request("name", time.Hour))
		return err == nil && res.Granted
	})
	if waited := time.Since(asked); waited < ttl {
		t.Errorf("the lock of a stopped process was free after %v", waited)
	}
	rec := readRecord(t, s, "name")
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.finish()
	if after := readRecord(t, s, "name"); after.Token != rec.Token {
		t.Errorf("the former holder has changed the record: %+v", after)
	}
}
