//go:build unix

package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
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

// TestFullDisk runs requests in a process that may not write beyond some byte of any file, which is
// as if the disk were full there: writes come to nothing, or stop half-way.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	c := start(t, command("fill", dir))
	if line := c.line(); line != "as it should be" {
		t.Error(line)
	}
	c.finish()
	granted(t, openTest(t, dir), "held", time.Hour)
}

// roleFill makes requests that do not fit, and checks that they say so and change nothing.
func roleFill(s *Store, _ []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	ctx, failures, next := context.Background(), 0, uint64(1)
	for limit := uint64(0); limit < 3*headerSize; limit, next = next, next+97 {
		held, fresh, place := request("held", time.Hour), request(fmt.Sprint("fresh", limit), time.Hour), request("held", time.Hour)
		place.Place = time.Hour
		if res, err := s.Acquire(ctx, held); err != nil || !res.Granted {
			return fmt.Errorf("%+v, %w", res, err)
		}
		if err := limitFiles(limit); err != nil {
			return err
		}
		_, freshErr := s.Acquire(ctx, fresh)
		_, placeErr := s.Acquire(ctx, place)
		now, renewErr := s.Renew(ctx, []driver.RenewRequest{{Name: "held", Owner: held.Owner, TTL: 2 * time.Hour}})
		renewed, lookupErr := s.Lookup(ctx, "held")
		_, keepErr := s.Release(ctx, driver.ReleaseRequest{Name: "held", Owner: held.Owner, Keep: time.Hour})
		kept, lookupErr2 := s.Lookup(ctx, "held")
		if err := cmp.Or(limitFiles(1<<30), lookupErr, lookupErr2); err != nil || len(renewed) != 1 || len(kept) != 1 {
			return fmt.Errorf("%v, %v, %w", renewed, kept, err)
		}
		check := func(what, name string, err error, isDone bool) error {
			if isDone != (err == nil) || err != nil && (!driver.IsNotApplied(err) || !strings.Contains(err.Error(), s.pathOf(name))) {
				return fmt.Errorf("with files of up to %d bytes %s is done: %t, and the error is: %w", limit, what, isDone, err)
			}
			if err != nil {
				failures++
			}
			return nil
		}
		err := errors.Join(
			check("an acquisition", fresh.Name, freshErr, release(s, fresh) == nil),
			check("a place", "held", placeErr, release(s, place) == nil),
			check("a renewal", "held", renewErr, now[0].State == driver.Held),
			check("a renewal", "held", renewErr, renewed[0].Remaining > time.Hour),
			check("a keep", "held", keepErr, kept[0].Kept),
			check("a keep", "held", keepErr, release(s, held) != nil),
		)
		if _, breakErr := s.Break(ctx, "held", 0); err != nil || breakErr != nil {
			return errors.Join(err, breakErr)
		}
	}
	if failures < 10 {
		return fmt.Errorf("no more than %d requests have failed", failures)
	}
	for range 40 { // in more than one page
		shared := request("shared", time.Hour)
		shared.Limit = driver.Shared
		if res, err := s.Acquire(ctx, shared); err != nil || !res.Granted {
			return fmt.Errorf("%+v, %w", res, err)
		}
	}
	if err := limitFiles(pageSize); err != nil {
		return err
	}
	_, err := s.Break(ctx, "shared", 0)
	if left, _ := s.Lookup(ctx, "shared"); len(left) == 0 || len(left) == 40 || err == nil || driver.IsNotApplied(err) {
		return fmt.Errorf("%d of 40 holds are left of a Break with the error %w", len(left), err)
	}
	fmt.Println("as it should be")
	return nil
}

func limitFiles(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = size
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
