//go:build unix

package filestore

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// TestFullDisk runs requests in a process that may not write beyond some byte of
// any file, which is as if the disk were full there: writes come to nothing, or
// stop half-way.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	c := start(t, command("fill", dir))
	if line := c.line(); line != "as it should be" {
		t.Error(line)
	}
	c.finish()
	s := openTest(t, dir)
	for _, name := range []string{"fresh", "free"} {
		granted(t, s, name, time.Hour)
	}
}

func roleFill(args []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	held, free := request("held", time.Hour), request("free", time.Hour)
	for _, req := range []olddriver.AcquireRequest{held, free} {
		if _, err := s.Acquire(ctx, req); err != nil {
			return err
		}
	}
	if _, err := s.Release(ctx, olddriver.ReleaseRequest{Name: free.Name, Owner: free.Owner}); err != nil {
		return err
	}
	for _, limit := range []uint64{0, 1, 100} {
		if err := limitFiles(limit); err != nil {
			return err
		}
		if err := checkFull(ctx, s, held); err != nil {
			return fmt.Errorf("with files of up to %d bytes: %w", limit, err)
		}
	}
	if err := checkFullAtFirst(ctx, filepath.Join(args[0], "new")); err != nil {
		return fmt.Errorf("in a new folder: %w", err)
	}
	fmt.Println("as it should be")
	return nil
}

// checkFullAtFirst checks the first request in a folder: its session does not
// fit, and then its tokens do not, or only in part.
func checkFullAtFirst(ctx context.Context, dir string) error {
	s, err := newEngine(dir, nil)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		limit uint64
		path  string
	}{{0, sessionsFolder}, {1000, s.tokensPath()}, {slotSize + 100, s.tokensPath()}, {2*slotSize + 100, s.tokensPath()}} {
		if err := limitFiles(step.limit); err != nil {
			return err
		}
		_, err := s.Acquire(ctx, request("name", time.Hour))
		if err := isFull(err, step.path); err != nil {
			return err
		}
	}
	if err := limitFiles(1 << 30); err != nil {
		return err
	}
	res, err := s.Acquire(ctx, request("name", time.Hour))
	if err != nil || !res.Granted {
		return fmt.Errorf("when there is room again: %+v, %w", res, err)
	}
	return s.Close()
}

// limitFiles bounds the size of the files that this process may write.
func limitFiles(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = size
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// checkFull checks that requests that must write fail, that they say so, and
// that everything is as before.
func checkFull(ctx context.Context, s *engine, held olddriver.AcquireRequest) error {
	for _, name := range []string{"fresh", "free"} {
		_, err := s.Acquire(ctx, request(name, time.Hour))
		if err := isFull(err, s.recordPath(name)); err != nil {
			return fmt.Errorf("acquire of a %s name: %w", name, err)
		}
		if rec, held, err := s.Lookup(ctx, name); held || err != nil {
			return fmt.Errorf("lookup of a %s name: %+v, %w", name, rec, err)
		}
	}
	outcomes, err := s.Renew(ctx, []olddriver.RenewRequest{{Name: "held", Owner: held.Owner, TTL: time.Hour}})
	if err := isFull(err, s.recordPath("held")); err != nil || outcomes[0] != olddriver.RenewUnknown {
		return fmt.Errorf("renew: %v, %w", outcomes, err)
	}
	_, err = s.Release(ctx, olddriver.ReleaseRequest{Name: "held", Owner: held.Owner})
	if err := isFull(err, s.recordPath("held")); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if rec, is, err := s.Lookup(ctx, "held"); !is || err != nil || rec.Holder != held.Holder {
		return fmt.Errorf("lookup of the held name: %+v, %v, %w", rec, is, err)
	}
	return nil
}

// isFull checks an error for all that it should say.
func isFull(err error, path string) error {
	if !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "free some space") {
		return fmt.Errorf("the error does not say what it should: %w", err)
	}
	return nil
}
