package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

func files(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestSweep: the files of names that are free for long are deleted, and those of
// others stay.
func TestSweep(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	f.wall.Store(time.Now().UnixNano()) // Files have the time of the real clock.
	s := openTestOn(t, f.host(), dir)
	locks := filepath.Join(dir, locksFolder)
	kept, _ := granted(t, s, "kept", time.Hour)
	if ok, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: "kept", Owner: kept.Owner, Keep: time.Hour}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	granted(t, s, "held", time.Hour)
	granted(t, s, "expired", time.Minute)
	last := nextIn(t, s, "free")
	writeFile(t, s.recordPath("empty"), "")
	f.pass(5 * time.Minute)
	s.sweepIdle(t.Context(), idleTime)
	if left := files(t, locks); len(left) != 5 {
		t.Errorf("after five minutes there are left %q", left)
	}
	f.pass(6 * time.Minute)
	s.sweepIdle(t.Context(), idleTime)
	if left := fmt.Sprint(files(t, locks)); left != "[held.json kept.json]" {
		t.Errorf("after eleven minutes there are left %s", left)
	}
	refused(t, s, "kept")
	refused(t, s, "held")
	if token := nextIn(t, s, "free"); token <= last {
		t.Errorf("after the sweep the token %d is granted, after %d", token, last)
	}
}

// TestSweepInBackground: the store that raises the mark sweeps.
func TestSweepInBackground(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	f.wall.Store(time.Now().UnixNano())
	s := openTestOn(t, f.host(), dir)
	nextIn(t, s, "old")
	f.pass(time.Hour)
	nextIn(t, s, "new")
	eventually(t, "the old record is deleted", func() bool {
		_, err := os.Stat(s.recordPath("old"))
		return errors.Is(err, os.ErrNotExist)
	})
}

// TestSweepOfSessions: a dead session stays until no record names it, so that its
// locks are free at once whenever it is swept.
func TestSweepOfSessions(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	live := start(t, command("hold", dir, "live", "1h"))
	live.number()
	dead := start(t, command("hold", dir, "dead", "1h"))
	dead.number()
	session := s.sessionPath(readRecord(t, s, "dead").Session)
	dead.kill()

	e, err := s.openRecord(t.Context(), "dead", exclusive)
	if err != nil {
		t.Fatal(err)
	}
	s.sweepIdle(t.Context(), idleTime)
	if _, err := os.Stat(session); err != nil {
		t.Errorf("a session is gone although a record could not be looked at: %v", err)
	}
	e.Close()
	s.sweepIdle(t.Context(), idleTime)
	if _, err := os.Stat(session); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead session is left: %v", err)
	}
	granted(t, s, "dead", time.Hour)
	refused(t, s, "live")
	if left := files(t, filepath.Join(dir, sessionsFolder)); len(left) != 2 {
		t.Errorf("there are %d sessions left, want 2", len(left))
	}
}

// TestSweepOfEmptySessions: what was never begun or never deleted goes in time.
func TestSweepOfEmptySessions(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	granted(t, s, "name", time.Hour)
	empty := s.sessionPath("00112233445566778899aabbccddeeff")
	writeFile(t, empty, "")
	other := filepath.Join(dir, sessionsFolder, "README")
	writeFile(t, other, "not ours")
	s.sweepIdle(t.Context(), idleTime)
	if _, err := os.Stat(empty); err != nil {
		t.Errorf("a session that may be about to begin is gone: %v", err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(empty, long, long); err != nil {
		t.Fatal(err)
	}
	s.sweepIdle(t.Context(), idleTime)
	if _, err := os.Stat(empty); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty session is left: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a foreign file is gone: %v", err)
	}
}
