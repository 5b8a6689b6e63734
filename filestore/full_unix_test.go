//go:build unix

package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	roles["fill"], roles["descriptors"] = roleFill, roleDescriptors
}

// While a process can open no more files, it does not take a dead holder for one that lives.
func TestNoDescriptors(t *testing.T) {
	dir := t.TempDir()
	c := start(t, command("descriptors", dir))
	c.line()
	holder := start(t, command("hold", dir, "name", "1h"))
	holder.number()
	holder.kill()
	c.finish()
}

// roleDescriptors acquires a name with ever more descriptors, until it has it.
func roleDescriptors(s *Store, _ []string) error {
	ctx := context.Background()
	req := request("name", time.Hour)
	if _, err := s.Acquire(ctx, req); err != nil {
		return err
	}
	if err := release(s, req); err != nil {
		return err
	}
	fmt.Println("ready")
	_ = awaitEOF()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = 0
	for failures := 0; ; failures++ {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		res, err := s.Acquire(ctx, request("name", time.Hour))
		switch {
		case res.Granted && failures > 1:
			return nil
		case !errors.Is(err, syscall.EMFILE) || !driver.IsNotApplied(err):
			return fmt.Errorf("with %d descriptors: %+v, %w", limit.Cur, res, err)
		}
		limit.Cur++
	}
}

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

func roleFill(s *Store, _ []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	ctx := context.Background()
	held, free := request("held", time.Hour), request("free", time.Hour)
	for _, req := range []driver.Request{held, free} {
		if _, err := s.Acquire(ctx, req); err != nil {
			return err
		}
	}
	if err := release(s, free); err != nil {
		return err
	}
	counter, err := os.ReadFile(s.pathOf("free"))
	if err != nil {
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
	file, err := os.ReadFile(s.pathOf("held"))
	if err != nil {
		return err
	}
	middle := bytes.Index(file, []byte(`"until_ns":`)) + 20
	limits := []uint64{uint64(middle)} // in the middle of an end, and of the entries
	for limit := uint64(headerSize); limit < 3*headerSize; limit += 97 {
		limits = append(limits, limit)
	}
	for _, limit := range limits {
		if err := limitFiles(limit); err != nil {
			return err
		}
		place := request("held", time.Hour)
		place.Place = time.Hour
		if res, err := s.Acquire(ctx, place); err == nil && res.Waiting {
			err = release(s, place)
			if err != nil {
				return err
			}
		} else if err := sayFull(err, s.pathOf("held")); err != nil {
			return fmt.Errorf("a place with files of up to %d bytes: %w", limit, err)
		}
		now, err := s.Renew(ctx, []driver.RenewRequest{{Name: "held", Owner: held.Owner, TTL: 2 * time.Hour}})
		if full := sayFull(err, s.pathOf("held")); full != nil && (err != nil || now[0].State != driver.Held) {
			return fmt.Errorf("renew with files of up to %d bytes: %w", limit, full)
		}
		records, lookupErr := s.Lookup(ctx, "held")
		if len(records) != 1 || lookupErr != nil || err != nil && records[0].Remaining > time.Hour {
			return fmt.Errorf("lookup with files of up to %d bytes: %v, %w", limit, records, lookupErr)
		}
		limitFiles(1 << 30)
		released := release(s, held)
		held = request("held", time.Hour)
		if res, err := s.Acquire(ctx, held); err != nil || !res.Granted || released != nil {
			return fmt.Errorf("a new hold: %v, %w", res, errors.Join(released, err))
		}
	}
	if c, err := os.ReadFile(s.pathOf("free")); err != nil || !bytes.Equal(c, counter) {
		return fmt.Errorf("the counter is %q, %v", bytes.TrimSpace(c), err)
	}
	if err := checkFullAtFirst(ctx, filepath.Join(s.dir, "new")); err != nil {
		return fmt.Errorf("in a new folder: %w", err)
	}
	fmt.Println("as it should be")
	return nil
}

// checkFullAtFirst checks the first request in a folder, in which the counter does not fit.
func checkFullAtFirst(ctx context.Context, dir string) error {
	s, err := New(dir, nil)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		limit uint64
		file  string
	}{{0, "locks"}, {60, "locks"}, {100, "locks"}} {
		if err := limitFiles(step.limit); err != nil {
			return err
		}
		_, err := s.Acquire(ctx, request("name", time.Hour))
		if err := sayFull(err, filepath.Join(dir, step.file)); err != nil {
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
// that everything is as before. A release that leaves nothing needs no room.
func checkFull(ctx context.Context, s *Store, held driver.Request) error {
	for _, name := range []string{"fresh", "free"} {
		_, err := s.Acquire(ctx, request(name, time.Hour))
		if err := sayFull(err, s.dir); err != nil {
			return fmt.Errorf("acquire of a %s name: %w", name, err)
		}
		if records, err := s.Lookup(ctx, name); len(records) > 0 || err != nil {
			return fmt.Errorf("lookup of a %s name: %v, %w", name, records, err)
		}
	}
	now, err := s.Renew(ctx, []driver.RenewRequest{{Name: "held", Owner: held.Owner, TTL: 2 * time.Hour}})
	if err := sayFull(err, s.pathOf("held")); err != nil || now[0].State != driver.Unknown {
		return fmt.Errorf("renew: %v, %w", now, err)
	}
	_, err = s.Release(ctx, driver.ReleaseRequest{Name: "held", Owner: held.Owner, Keep: time.Hour})
	if err := sayFull(err, s.pathOf("held")); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if records, err := s.Lookup(ctx, "held"); len(records) != 1 || err != nil || records[0].Holder != held.Holder {
		return fmt.Errorf("lookup of the held name: %v, %w", records, err)
	}
	return nil
}

// sayFull checks an error for all that it should say.
func sayFull(err error, path string) error {
	if !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "free some space") {
		return fmt.Errorf("the error does not say what it should: %w", err)
	}
	return nil
}
