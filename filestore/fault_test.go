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

// wantError checks that err is the wanted one and mentions all of the texts.
func wantError(tb testing.TB, err, want error, texts ...string) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Fatalf("the error is %v, want %v", err, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			tb.Errorf("the error does not mention %q: %v", text, err)
		}
	}
}

// The limit of this store: a lock that is held is free once its record is deleted. The
// tokens distinguish the two holders.
func TestDeletedRecord(t *testing.T) {
	s := openTest(t, t.TempDir())
	_, first := granted(t, s, "name", time.Hour)
	if err := os.Remove(s.recordPath("name")); err != nil {
		t.Fatal(err)
	}
	if _, second := granted(t, s, "name", time.Hour); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
}

var corruptRecords = map[string]string{
	"torn":          `{"holdfast":1,"name":"bad","state":"he`,
	"not JSON":      "hello\n",
	"other JSON":    `{"name":"bad"}`,
	"an array":      `[1,2]`,
	"another name":  `{"holdfast":1,"name":"good","state":"free","token":7}`,
	"no name":       `{"holdfast":1,"state":"free","token":7}`,
	"a newer one":   `{"holdfast":2,"name":"bad","state":"free","token":7}`,
	"no token":      `{"holdfast":1,"name":"bad","state":"free"}`,
	"a wrong token": `{"holdfast":1,"name":"bad","state":"free","token":9007199254740993}`,
	"a wrong state": `{"holdfast":1,"name":"bad","state":"lent","token":7}`,
	"an escape":     `{"holdfast":1,"name":"bad","state":"held","token":7,"session":"../../x"}`,
	"a tail":        `{"holdfast":1,"name":"bad","state":"free","token":7}` + "\nx",
	"NULs behind":   `{"holdfast":1,"name":"bad","state":"free","token":7}` + "\x00\x00",
	"too long":      `{"holdfast":1,"name":"bad","state":"free","token":7}` + strings.Repeat(" ", recordLimit),
}

func TestCorruptRecord(t *testing.T) {
	for what, text := range corruptRecords {
		t.Run(what, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			granted(t, s, "good", time.Hour)
			path := s.recordPath("bad")
			writeFile(t, path, text)
			checkCorrupt(t, s, path)
			if data, _ := os.ReadFile(path); string(data) != text {
				t.Errorf("the corrupt file was changed to %q", data)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			granted(t, s, "bad", time.Hour)
		})
	}
}

// checkCorrupt checks that every request for the name "bad" says which file is
// corrupt, and that other names go on.
func checkCorrupt(t *testing.T, s *engine, path string) {
	t.Helper()
	ctx := t.Context()
	_, err := s.Acquire(ctx, request("bad", time.Hour))
	wantError(t, err, driver.ErrCorrupt, path, "delete it")
	outcomes, err := s.Renew(ctx, []olddriver.RenewRequest{{Name: "bad", Owner: "x", TTL: time.Hour}})
	wantError(t, err, driver.ErrCorrupt, path)
	if outcomes[0] != olddriver.RenewUnknown {
		t.Errorf("Renew of a corrupt record is answered %v", outcomes[0])
	}
	_, err = s.Release(ctx, olddriver.ReleaseRequest{Name: "bad", Owner: "x"})
	wantError(t, err, driver.ErrCorrupt, path)
	_, _, err = s.Lookup(ctx, "bad")
	wantError(t, err, driver.ErrCorrupt, path)
	_, _, err = s.Break(ctx, olddriver.BreakRequest{Name: "bad"})
	wantError(t, err, driver.ErrCorrupt, path)

	var names []string
	var failures []error
	for rec, err := range s.List(ctx, "") {
		if err != nil {
			failures = append(failures, err)
			continue
		}
		names = append(names, rec.Name)
	}
	if len(failures) != 1 || !errors.Is(failures[0], driver.ErrCorrupt) || len(names) != 1 || names[0] != "good" {
		t.Errorf("List yields %q and the errors %v", names, failures)
	}
	for _, err := range s.List(ctx, "good") {
		if err != nil {
			t.Errorf("List of other names yields %v", err)
		}
	}
	req, _ := granted(t, s, "another", time.Hour)
	released(t, s, req)
}

func writeFile(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// TestEmptyRecord: what a power loss or a creation cut short leaves is free.
func TestEmptyRecord(t *testing.T) {
	for _, text := range []string{"", "\x00", strings.Repeat("\x00", 300), strings.Repeat("\x00", recordLimit)} {
		s := openTest(t, t.TempDir())
		writeFile(t, s.recordPath("name"), text)
		if _, held, err := s.Lookup(t.Context(), "name"); held || err != nil {
			t.Errorf("%d zeros are looked up as %v, %v", len(text), held, err)
		}
		if ok, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name"}); ok || err != nil {
			t.Errorf("%d zeros are released: %v, %v", len(text), ok, err)
		}
		req, _ := granted(t, s, "name", time.Hour)
		released(t, s, req)
	}
}

// TestForeignFiles: nothing in the folder that is no record does harm.
func TestForeignFiles(t *testing.T) {
	s := openTest(t, t.TempDir())
	granted(t, s, "good", time.Hour)
	locks := filepath.Dir(s.recordPath("good"))
	writeFile(t, filepath.Join(locks, "README"), "hello")
	writeFile(t, filepath.Join(locks, ".empty"), "")
	writeFile(t, filepath.Join(locks, "folder.json", "file"), "")
	if err := os.Symlink(s.recordPath("good"), s.recordPath("link")); err != nil {
		t.Fatal(err)
	}
	names, failures := 0, 0
	for rec, err := range s.List(t.Context(), "") {
		if err != nil {
			failures++
		} else if rec.Name == "good" {
			names++
		}
	}
	if names != 1 || failures != 3 {
		t.Errorf("List yields the name %d times and %d errors, want 1 and 3", names, failures)
	}
	_, err := s.Acquire(t.Context(), request("link", time.Hour))
	wantError(t, err, driver.ErrNotApplied, s.recordPath("link"))
	_, err = s.Acquire(t.Context(), request("folder", time.Hour))
	wantError(t, err, driver.ErrNotApplied, s.recordPath("folder"))
	s.sweepIdle(t.Context(), 0)
	if _, err := os.Stat(filepath.Join(locks, "README")); err != nil {
		t.Errorf("the sweep took a file that is not its own: %v", err)
	}
}
