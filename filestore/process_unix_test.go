//go:build unix

package filestore

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"
)

// No request leaves a descriptor open, whatever its outcome. The garbage collector does not run.
func TestDescriptors(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for what, prepare := range map[string]func(path string) error{
		"missing":       func(string) error { return nil },
		"a file above":  func(path string) error { return os.WriteFile(filepath.Dir(path), nil, 0o600) },
		"an old folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "sessions"), 0o700) },
		"moved away":    func(path string) error { return os.RemoveAll(path) },
		"a spoilt file": func(path string) error {
			_ = os.Mkdir(filepath.Dir(path), 0o700)
			_ = os.Mkdir(path, 0o700)
			return os.WriteFile(filepath.Join(path, shardFile(anyone("name").shard)), []byte("{"), 0o600)
		},
	} {
		path := filepath.Join(t.TempDir(), "above", "folder")
		before := 0
		for turn := range 20 {
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			s, err := New(path, nil)
			if err != nil {
				continue
			}
			for range s.List(t.Context(), "") {
				continue
			}
			req := request("name", time.Hour)
			_, _ = s.Acquire(t.Context(), req)
			_ = release(s, req)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
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
