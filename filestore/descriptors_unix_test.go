//go:build unix

package filestore

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// No request leaves a descriptor open, whatever its outcome. The garbage collector does not run.
func TestDescriptors(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for what, prepare := range map[string]func(path string) error{
		"missing":         func(string) error { return nil },
		"a file above":    func(path string) error { return os.WriteFile(filepath.Dir(path), nil, 0o600) },
		"only locks":      func(path string) error { return os.MkdirAll(filepath.Join(path, locksFolder), 0o700) },
		"moved away":      func(path string) error { _ = os.RemoveAll(path); return nil },
		"a spoilt record": func(path string) error { writeFile(t, filepath.Join(path, locksFolder, "name.json"), "{"); return nil },
	} {
		path := filepath.Join(t.TempDir(), "above", "folder")
		s := openTest(t, path)
		before := 0
		for turn := range 20 {
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			recheckFolder(s)
			for range s.List(t.Context(), "") {
				continue
			}
			s.sweepIdle(t.Context(), 0)
			if what != "only locks" {
				req := request("name", time.Hour)
				_, _ = s.Acquire(t.Context(), req)
				_, _ = s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: req.Owner})
			}
			s.sweeps.Wait()
			open, err := os.ReadDir("/dev/fd")
			if err != nil {
				t.Fatal(err)
			}
			if turn == 1 {
				before = len(open)
			}
			if turn > 1 && len(open) > before {
				t.Errorf("%s, turn %d: %d descriptors are open, and were %d", what, turn, len(open), before)
			}
		}
	}
}
