package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// next takes a name in a store opened on f as it is now, and releases it.
func next(t *testing.T, f *fakeHost, dir, name string) int64 {
	t.Helper()
	s := openTestOn(t, f.host(), dir)
	return nextIn(t, s, name)
}

func nextIn(t *testing.T, s *engine, name string) int64 {
	t.Helper()
	req, token := granted(t, s, name, time.Minute)
	released(t, s, req)
	return token
}

// forget deletes all records, which a sweep may do once the clock has passed
// their tokens.
func forget(t *testing.T, f *fakeHost, dir string) {
	t.Helper()
	f.pass(time.Millisecond)
	if err := os.RemoveAll(filepath.Join(dir, locksFolder)); err != nil {
		t.Fatal(err)
	}
}

func rises(t *testing.T, what string, last *int64, token int64) {
	t.Helper()
	if token <= *last {
		t.Fatalf("%s the token %d is granted, after %d", what, token, *last)
	}
	*last = token
}

// TestTokensRise takes a name again and again while all goes wrong that a token
// clock can suffer, with the records deleted each time.
func TestTokensRise(t *testing.T) {
	f, dir, last := newFakeHost(), t.TempDir(), int64(0)
	rises(t, "at first", &last, next(t, f, dir, "name"))
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
			forget(t, f, dir)
			harm()
			rises(t, what, &last, next(t, f, dir, "name"))
			rises(t, what+", at once,", &last, next(t, f, dir, "name"))
		}
	}
}

// TestTokensRiseInOneProcess is the same for a process that goes on.
func TestTokensRiseInOneProcess(t *testing.T) {
	f, dir, last := newFakeHost(), t.TempDir(), int64(0)
	s := openTestOn(t, f.host(), dir)
	for range 100 {
		f.pass(7 * time.Minute)
		f.step(-time.Hour)
		rises(t, "in one process", &last, nextIn(t, s, "name"))
		forget(t, f, dir)
		rises(t, "in another process", &last, next(t, f, dir, "name"))
		forget(t, f, dir)
	}
}

// TestPowerLoss leaves of hours of grants what was flushed, with a wall clock
// that has lost its battery.
func TestPowerLoss(t *testing.T) {
	f, dir, last, lastHigh := newFakeHost(), t.TempDir(), int64(0), int64(0)
	for range 5 {
		s := openTestOn(t, f.host(), dir)
		for range 30 {
			f.pass(time.Minute)
			rises(t, "before the power loss", &last, nextIn(t, s, "name"))
			rises(t, "before the power loss, far ahead,", &lastHigh, nextAbove(t, s, "high", f.ahead()))
		}
		f.losePower(t, dir)
		rises(t, "after the power loss", &last, next(t, f, dir, "name"))
		rises(t, "after the power loss, far ahead,", &lastHigh, next(t, f, dir, "high"))
	}
}

// ahead is a floor far above the clock of the host, but not too far.
func (f *fakeHost) ahead() int64 { return f.host().wall().Add(driver.MaxLead - time.Hour).UnixMicro() }

func nextAbove(t *testing.T, s *engine, name string, floor int64) int64 {
	t.Helper()
	req := request(name, time.Minute)
	req.Floor = floor
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted || res.Token < floor {
		t.Fatalf("with a floor of %d: %+v, %v", floor, res, err)
	}
	released(t, s, req)
	return res.Token
}

// TestFlushFails: a token that may be forgotten is not given out, and a
// repetition of the request does not find it.
func TestFlushFails(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s := openTestOn(t, f.host(), dir)
	low, high, later := request("low", time.Minute), request("high", time.Minute), request("later", time.Minute)
	high.Floor = f.ahead()
	for _, req := range []olddriver.AcquireRequest{low, high, later} {
		f.pass(11 * time.Minute)
		f.broken = errors.New("the disk is broken")
		for range 3 {
			res, err := s.Acquire(t.Context(), req)
			wantError(t, err, f.broken, "cannot flush")
			if res.Granted {
				t.Errorf("%q is granted", req.Name)
			}
		}
		f.broken = nil
		if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
			t.Errorf("with the disk mended %q is answered %+v, %v", req.Name, res, err)
		}
	}
}

// dropCopy returns the tokens file without the line that is never flushed.
func dropCopy(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data[:flushedSlot*slotSize]
}

// TestTornTokens spoils the line that was written last, which is what a power
// loss does before it has been flushed: nothing was granted on the strength of
// it.
func TestTornTokens(t *testing.T) {
	for _, torn := range []string{"", "\x00", `{"holdfast":1,"turn":999,"boot":"x","mark":9}`, "garbage"} {
		f, dir, last := newFakeHost(), t.TempDir(), int64(0)
		path := filepath.Join(dir, tokensFile)
		for range 4 {
			s := openTestOn(t, f.host(), dir)
			f.pass(11 * time.Minute)
			rises(t, "before", &last, nextIn(t, s, "name"))
			f.pass(time.Minute)
			lines := tokenLines(t, path)
			unflushed := (lines[flushedSlot].Turn + 1) % 2
			spoil(t, path, unflushed, torn)
			forget(t, f, dir)
			f.reboot()
			f.wall.Store(0)
			rises(t, "after", &last, next(t, f, dir, "name"))
		}
	}
}

func tokenLines(t *testing.T, path string) [slotCount]savedTokens {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return decodeSlots(data)
}

// spoil overwrites a line of the tokens file, and drops the copy.
func spoil(t *testing.T, path string, slot int64, text string) {
	t.Helper()
	data := dropCopy(t, path)
	line := []byte(text + strings.Repeat(" ", slotSize-len(text)))
	data = append(data, make([]byte, flushedSlot*slotSize-len(data))...)
	copy(data[slot*slotSize:], line)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newestTurn(lines [slotCount]savedTokens) int64 {
	return max(lines[0].Turn, lines[1].Turn, lines[2].Turn)
}

func TestCorruptTokens(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	first := next(t, f, dir, "name")
	path := filepath.Join(dir, tokensFile)
	writeFile(t, path, "garbage")
	s := openTestOn(t, f.host(), dir)
	_, err := s.Acquire(t.Context(), request("name", time.Minute))
	wantError(t, err, driver.ErrCorrupt, path, "delete it")
	if _, held, err := s.Lookup(t.Context(), "name"); held || err != nil {
		t.Errorf("Lookup: %v, %v", held, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, second := granted(t, s, "name", time.Minute); second <= first {
		t.Errorf("the token %d is granted after %d", second, first)
	}
}

// TestMarkIsAhead: one fsync is enough for ten minutes of grants.
func TestMarkIsAhead(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s := openTestOn(t, f.host(), dir)
	nextIn(t, s, "name")
	turn := newestTurn(tokenLines(t, s.tokensPath()))
	for range 590 {
		f.pass(time.Second)
		nextIn(t, s, "name")
	}
	if now := newestTurn(tokenLines(t, s.tokensPath())); now != turn {
		t.Errorf("the tokens file was written %d times within ten minutes", now-turn)
	}
	f.pass(11 * time.Second)
	nextIn(t, s, "name")
	if now := newestTurn(tokenLines(t, s.tokensPath())); now != turn+1 {
		t.Errorf("the tokens file was written %d times after ten minutes", now-turn)
	}
}

// TestHighFloor: a floor far ahead concerns its own name, over reboots too, and
// not the tokens of others.
func TestHighFloor(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s := openTestOn(t, f.host(), dir)
	high := f.ahead()
	if token := nextAbove(t, s, "high", high); token != high {
		t.Errorf("the token %d is granted", token)
	}
	f.reboot()
	s = openTestOn(t, f.host(), dir)
	if token := nextIn(t, s, "low"); token > high-time.Hour.Microseconds() {
		t.Errorf("another name has the token %d", token)
	}
	for want := high + 1; want <= high+2; want++ {
		if token := nextIn(t, s, "high"); token != want {
			t.Errorf("the next token is %d, want %d", token, want)
		}
	}
	f.pass(time.Second)
	f.wall.Store(time.Now().Add(time.Hour).UnixNano()) // Files have the time of the real clock.
	s.sweepIdle(t.Context(), 0)
	if _, err := os.Stat(s.recordPath("low")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the sweep has left a free name: %v", err)
	}
	if _, err := os.Stat(s.recordPath("high")); err != nil {
		t.Errorf("the sweep has forgotten a token that the clock has not reached: %v", err)
	}
	req := request("other", time.Minute)
	req.Floor = driver.MaxToken + 1
	_, err := s.Acquire(t.Context(), req)
	wantError(t, err, driver.ErrInvalid, "floor")
}

// TestTokensFileDeleted: tokens go on rising for those who remember.
func TestTokensFileDeleted(t *testing.T) {
	f, dir, last := newFakeHost(), t.TempDir(), int64(0)
	s := openTestOn(t, f.host(), dir)
	rises(t, "at first", &last, nextIn(t, s, "name"))
	if err := os.Remove(s.tokensPath()); err != nil {
		t.Fatal(err)
	}
	forget(t, f, dir)
	f.pass(time.Hour)
	f.step(-2 * time.Hour)
	rises(t, "without the file", &last, nextIn(t, s, "name"))
	forget(t, f, dir)
	rises(t, "in another process", &last, next(t, f, dir, "name"))
}
