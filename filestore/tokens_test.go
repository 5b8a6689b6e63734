package filestore

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// nextOn is next in a store that is opened on f as it is now.
func nextOn(t *testing.T, f *fakeHost, dir, name string) int64 {
	t.Helper()
	return next(t, openTestOn(t, f.host(), dir), name)
}

// Tokens rise while all goes wrong that a clock can suffer.
func TestTokensRise(t *testing.T) {
	f, dir, last := newFakeHost(), t.TempDir(), int64(0)
	rises(t, "at first", &last, nextOn(t, f, dir, "name"))
	if want := f.host().wall().UnixMicro(); last != want {
		t.Errorf("the first token is %d, want the time of day, %d", last, want)
	}
	for what, harm := range map[string]func(){
		"with the wall clock set back":                   func() { f.step(-240 * time.Hour) },
		"with the wall clock set ahead":                  func() { f.step(24 * time.Hour) },
		"after a reboot":                                 func() { f.reboot() },
		"after a reboot with the wall clock set back":    func() { f.reboot(); f.step(-1000 * time.Hour) },
		"after a reboot with the wall clock set ahead":   func() { f.reboot(); f.step(500 * time.Hour) },
		"after a quarter of an hour":                     func() { f.pass(15 * time.Minute) },
		"after a suspension with the wall clock at 1970": func() { f.pass(100 * time.Hour); f.wall.Store(0) },
	} {
		for range 3 {
			f.pass(time.Millisecond)
			harm()
			rises(t, what, &last, nextOn(t, f, dir, "name"))
			rises(t, what+", at once,", &last, nextOn(t, f, dir, "name"))
		}
	}
}

// A power loss leaves of the lines what it may leave, and of the header what was flushed or written
// since. The folder can be used at once, and tokens rise, also those far ahead of the clock and
// those of a block.
func TestPowerLoss(t *testing.T) {
	f, dir, last, lastHigh := newFakeHost(), t.TempDir(), int64(0), int64(0)
	for range 50 {
		s := openTestOn(t, f.host(), dir)
		for range 5 {
			f.pass(time.Duration(rand.Int64N(int64(11 * time.Minute))))
			rises(t, "before the power loss", &last, next(t, s, "name"))
			req := request("high", time.Minute)
			req.Floor = f.ahead()
			_, token := grantedTo(t, s, req)
			rises(t, "before the power loss, far ahead,", &lastHigh, token)
			released(t, s, req)
			block := request("name", time.Minute)
			block.Tokens = driver.MaxTokens
			_, first := grantedTo(t, s, block)
			rises(t, "before the power loss, a block", &last, first)
			last += driver.MaxTokens - 1
			released(t, s, block)
		}
		granted(t, s, "held", time.Hour)
		granted(t, s, "name", time.Hour)
		s.die()
		losePower(t, f, dir)
		after := openTestOn(t, f.host(), dir)
		for rec, err := range after.List(t.Context(), "") {
			t.Errorf("after the power loss List yields %v, %v", rec, err)
		}
		rises(t, "after the power loss", &last, next(t, after, "name"))
		rises(t, "after the power loss, far ahead,", &lastHigh, next(t, after, "high"))
		next(t, after, "held")
		after.Close() // Its sweep has ended.
		s.folder.close()
		for _, sh := range s.folder.shards {
			sh.file.Close()
		}
	}
}

// losePower harms the lines that were not flushed, and those that were written since, and reboots.
func losePower(t *testing.T, f *fakeHost, dir string) {
	t.Helper()
	for _, file := range files(t, dir) {
		path := filepath.Join(dir, file)
		if !strings.HasPrefix(file, shardFile(0)[:6]) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		header, lines := string(text[:headerSize]), string(text[headerSize:])
		if rand.IntN(2) == 0 {
			header = f.flushed[path][:headerSize]
		}
		writeFile(t, path, header+[]string{
			"", strings.Repeat("\x00", len(lines)), lines[:len(lines)/2/headerSize*headerSize], strings.Replace(lines, "name", "\x00\n\x00\x00", 1), lines,
		}[rand.IntN(5)])
		long := time.Unix(0, f.wall.Load()-f.up.Load())
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	f.reboot()
}

// ahead is a floor far above the clock of the host, but not too far.
func (f *fakeHost) ahead() int64 { return f.host().wall().Add(driver.MaxLead - time.Hour).UnixMicro() }

// A token that may be forgotten is not given out.
func TestFlushFails(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s := openTestOn(t, f.host(), dir)
	broken := errors.New("the disk is broken")
	low, high, later := request("low", time.Minute), request("high", time.Minute), request("later", time.Minute)
	high.Floor = f.ahead()
	for _, req := range []driver.Request{low, high, later} {
		f.pass(11 * time.Minute)
		f.setBroken(broken)
		for range 3 {
			res, err := s.Acquire(t.Context(), req)
			wantError(t, err, broken, "cannot flush")
			if res.Granted {
				t.Errorf("%q is granted", req.Name)
			}
		}
		f.setBroken(nil)
		grantedTo(t, s, req)
	}
}

// A mark that a process has written and not flushed, since it was killed, covers no token. What it
// leaves has nothing of an earlier boot.
func TestKilledBeforeTheFlush(t *testing.T) {
	f := newFakeHost()
	host := f.host()
	left, flush := []byte(nil), host.flush
	host.flush = func(file *os.File) error {
		if left == nil {
			left, _ = os.ReadFile(file.Name())
		}
		return flush(file)
	}
	dir := t.TempDir()
	earlier := openTestOn(t, f.host(), dir)
	req, _ := granted(t, earlier, "name", time.Hour)
	if _, err := earlier.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: req.Owner, Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	f.reboot()
	host.boot, left = f.host().boot, nil
	next(t, openTestOn(t, host, dir), "name")
	s := openTestOn(t, f.host(), t.TempDir())
	writeFile(t, s.pathOf("name"), string(left))
	if records, err := s.Lookup(t.Context(), "name"); err != nil || len(records) > 0 {
		t.Errorf("the keep of the earlier boot goes on: %v, %v", records, err)
	}
	f.setBroken(errors.New("it was flushed"))
	if _, err := s.Acquire(t.Context(), request("name", time.Minute)); err == nil {
		t.Error("nothing was flushed")
	}
}

// One flush is enough for ten minutes of grants.
func TestMarkIsAhead(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s := openTestOn(t, f.host(), dir)
	next(t, s, "name")
	f.setBroken(errors.New("it was flushed"))
	for range 590 {
		f.pass(time.Second)
		next(t, s, "name")
	}
	f.pass(11 * time.Second)
	if _, err := s.Acquire(t.Context(), request("name", time.Minute)); err == nil {
		t.Error("after ten minutes nothing was flushed")
	}
}
