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
		isRenewed := now[0].State == driver.Held
		if len(renewed) != 1 || lookupErr != nil || isRenewed != (renewErr == nil) || isRenewed != (renewed[0].Remaining > time.Hour) {
			return fmt.Errorf("with files of up to %d bytes a renewal is %v, %v, and the hold is %v, %v", limit, now, renewErr, renewed, lookupErr)
		}
		_, keepErr := s.Release(ctx, driver.ReleaseRequest{Name: "held", Owner: held.Owner, Keep: time.Hour})
		if kept, err := s.Lookup(ctx, "held"); len(kept) != 1 || err != nil || kept[0].Kept != (keepErr == nil) {
			return fmt.Errorf("with files of up to %d bytes a keep is %v, and the hold is %v, %v", limit, keepErr, kept, err)
		}
		if err := limitFiles(1 << 30); err != nil {
			return err
		}
		for file, err := range map[string]error{s.pathOf(fresh.Name): freshErr, s.pathOf("held"): cmp.Or(renewErr, keepErr, placeErr)} {
			if err == nil {
				continue
			}
			if failures++; !driver.IsNotApplied(err) || !strings.Contains(err.Error(), file) {
				return fmt.Errorf("the error does not say what it should: %w", err)
			}
		}
		for req, made := range map[*driver.Request]bool{&fresh: freshErr == nil, &place: placeErr == nil, &held: keepErr != nil} {
			if err := release(s, *req); (err == nil) != made {
				return fmt.Errorf("with files of up to %d bytes %+v is there: %t, %w", limit, *req, err == nil, err)
			}
		}
		if _, err := s.Break(ctx, "held", 0); err != nil {
			return err
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

// limitFiles bounds the size of the files that this process may write.
func limitFiles(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = size
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
