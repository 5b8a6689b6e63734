//go:build unix

package filestore

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
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

// While another process is stopped in a request, the names of other shards are renewed and
// released.
func TestRenewBesideAHeldUpShard(t *testing.T) {
	s := openTest(t, t.TempDir())
	name, other := "name", "other"
	if anyone(name).shard == anyone(other).shard {
		t.Fatal("the names share a file")
	}
	first, _ := granted(t, s, name, time.Hour)
	second, _ := granted(t, s, other, time.Hour)
	file, err := os.Open(s.pathOf(name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := setLock(file, exclusive); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // time enough for a busy disk
	defer cancel()
	entries, err := s.Renew(ctx, []driver.RenewRequest{
		{Name: name, Owner: first.Owner, TTL: time.Hour}, {Name: other, Owner: second.Owner, TTL: time.Hour},
	})
	if err == nil || entries[0].State != driver.Unknown || entries[1].State != driver.Held {
		t.Errorf("%v, %v", entries, err)
	}
	released(t, s, second)
}
