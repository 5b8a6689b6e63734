package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

func init() {
	roles["hold-limited"] = roleHoldLimited
	roles["churn-limited"] = roleChurnLimited
}

// limited is a request of an owner of its own with a Limit.
func limited(name string, limit int) olddriver.AcquireRequest {
	req := request(name, time.Hour)
	req.Limit = limit
	return req
}

// acquireAs sends a request and checks whether it is granted.
func acquireAs(tb testing.TB, s *engine, req olddriver.AcquireRequest, want bool) olddriver.AcquireResult {
	tb.Helper()
	res, err := s.Acquire(tb.Context(), req)
	if err != nil || res.Granted != want {
		tb.Fatalf("Acquire of %q with limit %d: %+v, %v, want granted %v", req.Name, req.Limit, res, err, want)
	}
	return res
}

// roleHoldLimited holds a name with a limit, or waits for it, until its input ends.
func roleHoldLimited(args []string) error {
	limit, _ := strconv.Atoi(args[2])
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	req := limited(args[1], limit)
	req.Queue = time.Hour
	res, err := s.Acquire(context.Background(), req)
	if err != nil {
		return err
	}
	fmt.Println(res.Token)
	return awaitEOF()
}

// The shared holds of killed processes are over at once, while others live.
func TestKilledReaders(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	var readers []*child
	for range 4 {
		c := start(t, command("hold-limited", dir, "name", "-1"))
		c.number()
		readers = append(readers, c)
	}
	own := limited("name", olddriver.Shared)
	acquireAs(t, s, own, true)
	readers[1].kill()
	readers[2].kill()
	if rec, _, err := s.Lookup(t.Context(), "name"); err != nil || len(rec.Others) != 2 {
		t.Errorf("two of five are dead, Lookup: %+v, %v", rec, err)
	}
	released(t, s, own)
	acquireAs(t, s, request("name", time.Hour), false)
	readers[0].kill()
	acquireAs(t, s, request("name", time.Hour), false)
	readers[3].kill()
	writer := request("name", time.Hour)
	acquireAs(t, s, writer, true)
	released(t, s, writer)
	if rec := readRecord(t, s, "name"); rec.Tolerant != nil || rec.State != stateFree {
		t.Errorf("the record is %+v", rec)
	}
}

// The share of a killed process is free at once, while others live.
func TestKilledShare(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	acquireAs(t, s, limited("name", 2), true)
	c := start(t, command("hold-limited", dir, "name", "2"))
	c.number()
	acquireAs(t, s, limited("name", 2), false)
	c.kill()
	acquireAs(t, s, limited("name", 2), true)
	acquireAs(t, s, limited("name", 2), false)
}

// A waiter keeps others out as long as its process lives, and no longer.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	reader := limited("name", olddriver.Shared)
	acquireAs(t, s, reader, true)
	c := start(t, command("hold-limited", dir, "name", "0"))
	if c.number() != 0 {
		t.Fatal("a writer is granted the name beside a reader")
	}
	acquireAs(t, s, limited("name", olddriver.Shared), false)
	acquireAs(t, s, reader, true)
	released(t, s, reader)
	if held := acquireAs(t, s, limited("name", olddriver.Shared), false).Held; held.Remaining <= 0 {
		t.Errorf("the name that is kept for a writer is described as %+v", held)
	}
	if rec, found, err := s.Lookup(t.Context(), "name"); found || err != nil {
		t.Errorf("Lookup: %+v, %v", rec, err)
	}
	c.kill()
	acquireAs(t, s, limited("name", olddriver.Shared), true)
}

// Requests that a waiter repeats rewrite the record only when less than half of its time is left.
func TestWaiterIsWrittenSeldom(t *testing.T) {
	f := newFakeHost()
	s := openTestOn(t, f.host(), t.TempDir())
	acquireAs(t, s, limited("name", olddriver.Shared), true)
	writer, writes, before := request("name", time.Hour), 0, ""
	writer.Queue = 10 * time.Second
	for range 60 {
		acquireAs(t, s, writer, false)
		data, err := os.ReadFile(s.recordPath("name"))
		if err != nil {
			t.Fatal(err)
		}
		if string(data) != before {
			writes++
		}
		before = string(data)
		acquireAs(t, s, limited("name", olddriver.Shared), false)
		f.pass(time.Second)
	}
	if writes < 6 || writes > 10 {
		t.Errorf("a waiter of a minute was written %d times, want once in 6 s", writes)
	}
	f.pass(10 * time.Second)
	acquireAs(t, s, limited("name", olddriver.Shared), true)
}

// A process that is killed while it changes a record with many holds has changed it or not: the
// holds of others stay.
func TestKilledInACrowd(t *testing.T) {
	const holders = 30
	dir := t.TempDir()
	s := openTest(t, dir)
	for range holders {
		acquireAs(t, s, limited("name", olddriver.Shared), true)
	}
	for i := range 15 {
		c := start(t, command("churn-limited", dir, "name"))
		for range i + 1 {
			c.number()
		}
		c.kill()
		rec, _, err := s.Lookup(t.Context(), "name")
		if err != nil || len(rec.Others) != holders-1 {
			t.Fatalf("after a kill there are %d other holds, %v", len(rec.Others), err)
		}
		acquireAs(t, s, request("name", time.Hour), false)
	}
}

// roleChurnLimited takes and releases a share of a name until it is killed.
func roleChurnLimited(args []string) error {
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	for {
		req := limited(args[1], olddriver.Shared)
		res, err := s.Acquire(context.Background(), req)
		if err != nil || !res.Granted {
			return fmt.Errorf("not granted: %w", err)
		}
		fmt.Println(res.Token)
		if _, err := s.Release(context.Background(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
			return err
		}
	}
}

// A change that was cut short before the page was written has changed nothing, also if it was the
// first to go beyond the page.
func TestCutShortBehindThePage(t *testing.T) {
	s := openTest(t, t.TempDir())
	for range 40 {
		f, err := s.openRecord(t.Context(), "name", exclusive)
		if err == nil {
			cut := record{State: stateHeld, Limit: olddriver.Shared, Token: 1, Boot: s.host.boot, Expires: s.host.uptime() + time.Hour}
			next := f.rec.with(nil, &cut, &s.host)
			var behind []byte
			if _, behind, err = next.encodeTolerant(recordLimit, f.rec.Tolerant); behind != nil {
				err = f.writeBehind(next.Tolerant, bytes.Repeat([]byte("x"), len(behind)))
			}
			f.Close()
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		acquireAs(t, s, limited("name", olddriver.Shared), true)
	}
	if rec, _, err := s.Lookup(t.Context(), "name"); err != nil || len(rec.Others) != 39 {
		t.Errorf("there are %d other holds, %v", len(rec.Others), err)
	}
}

// After a power loss that has spoiled what is behind the page, the name is free.
func TestPowerLossInACrowd(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s := openTestOn(t, f.host(), dir)
	last := int64(0)
	for range 40 {
		rises(t, "before the loss", &last, acquireAs(t, s, limited("name", olddriver.Shared), true).Token)
	}
	if err := os.Truncate(s.recordPath("name"), recordLimit+100); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Lookup(t.Context(), "name")
	wantError(t, err, driver.ErrCorrupt, s.recordPath("name"))
	f.reboot()
	f.wall.Store(0)
	s = openTestOn(t, f.host(), dir)
	rises(t, "after the loss", &last, acquireAs(t, s, limited("name", 1), true).Token)
	acquireAs(t, s, limited("name", 1), false)
}

// Damaged records with shared holds are errors that name the file.
func TestDamagedTolerantRecords(t *testing.T) {
	for what, change := range map[string]func(string) string{
		"a hold less":      func(text string) string { return text[:strings.Index(text, `{"holdfast":2,"state"`)] },
		"another limit":    func(text string) string { return strings.Replace(text, `"limit":-1`, `"limit":0`, 1) },
		"another place":    func(text string) string { return strings.Replace(text, `"size"`, `"at":4097,"size"`, 1) },
		"a place far away": func(text string) string { return strings.Replace(text, `"size"`, `"at":1000000000000,"size"`, 1) },
		"a huge size":      func(text string) string { return strings.Replace(text, `"size":`, `"at":4096,"size":99999`, 1) },
		"no holds":         func(text string) string { return strings.Replace(text, `"tolerant"`, `"other"`, 1) },
		"the old format":   func(text string) string { return strings.Replace(text, `"holdfast":2`, `"holdfast":1`, 1) },
		"a waiter's path":  func(text string) string { return strings.Replace(text, `"size"`, `"waiter_session":"../x","size"`, 1) },
	} {
		t.Run(what, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			granted(t, s, "good", time.Hour)
			acquireAs(t, s, limited("bad", olddriver.Shared), true)
			data, err := os.ReadFile(s.recordPath("bad"))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, s.recordPath("bad"), change(string(data)))
			_, err = s.Acquire(t.Context(), limited("bad", olddriver.Shared))
			wantError(t, err, driver.ErrCorrupt, s.recordPath("bad"))
			useHostile(t, s)
		})
	}
}

// The clock, which costs a system call, is read as often in a crowd as among few.
func TestClockInACrowd(t *testing.T) {
	readings := func(holders int) int64 {
		var count atomic.Int64
		h := newFakeHost().host()
		uptime := h.uptime
		h.uptime = func() time.Duration { count.Add(1); return uptime() }
		s := openTestOn(t, h, t.TempDir())
		for range holders {
			acquireAs(t, s, limited("name", 200), true)
		}
		s.sweeps.Wait()
		count.Store(0)
		req := limited("name", 200)
		acquireAs(t, s, req, true)
		if outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: time.Hour}}); err != nil || outcomes[0] != olddriver.Renewed {
			t.Fatal(outcomes, err)
		}
		released(t, s, req)
		return count.Load()
	}
	if few, many := readings(5), readings(100); few != many {
		t.Errorf("the clock was read %d times with 5 other holders, and %d times with 100", few, many)
	}
}
