//go:build unix

package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// readOnly are the unfinished folders that a writer would complete.
var readOnly = []string{"missing", "empty", "no sessions"}

// unfinished has folders that requests cannot use, or can use in part. Each function
// prepares the folder at path before the requests of a turn.
var unfinished = map[string]func(path string, turn int) error{
	"missing": func(string, int) error { return nil },
	"empty":   func(path string, _ int) error { return os.MkdirAll(path, 0o700) },
	"no sessions": func(path string, _ int) error {
		return os.MkdirAll(filepath.Join(path, locksFolder), 0o700)
	},
	"a link at locks": func(path string, _ int) error {
		err := os.MkdirAll(path, 0o700)
		_ = os.Symlink("/", filepath.Join(path, locksFolder))
		return err
	},
	"a file at sessions": func(path string, _ int) error {
		err := os.MkdirAll(filepath.Join(path, locksFolder), 0o700)
		return errors.Join(err, os.WriteFile(filepath.Join(path, sessionsFolder), nil, 0o600))
	},
	"a file above": func(path string, _ int) error { return os.WriteFile(filepath.Dir(path), nil, 0o600) },
	"a spoilt record": func(path string, _ int) error {
		err := os.MkdirAll(filepath.Join(path, locksFolder), 0o700)
		return errors.Join(err, os.WriteFile(filepath.Join(path, locksFolder, "name.json"), []byte("{"), 0o600))
	},
	"moved away": func(path string, turn int) error {
		_ = os.Rename(path, path+fmt.Sprint(turn))
		return nil
	},
}

// TestDescriptors: no request leaves a descriptor open, whatever its outcome, so
// that the process is not left without any. The garbage collector does not run.
func TestDescriptors(t *testing.T) {
	for what := range unfinished {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := start(t, command("descriptors", filepath.Join(t.TempDir(), "above", "folder"), what))
			if line := c.line(); line != "ok" {
				t.Error(line)
			}
			c.finish()
		})
	}
}

// roleDescriptors makes requests in one of the unfinished folders, and prints "ok"
// if none of them has failed for want of descriptors or has left one open.
func roleDescriptors(args []string) error {
	const limit, turns = 64, 150
	debug.SetGCPercent(-1)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	path, prepare := args[0], unfinished[args[1]]
	if args[1] != "a file above" && args[1] != "missing" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	}
	s, err := New(path, nil)
	if err != nil {
		return err
	}
	problem := func() string {
		before := 0
		for turn := range turns {
			if err := prepare(path, turn); err != nil {
				return err.Error()
			}
			recheckFolder(s)
			for what, err := range requests(s, slices.Contains(readOnly, args[1])) {
				if errors.Is(err, syscall.EMFILE) || err != nil && strings.Contains(err.Error(), "too many open files") {
					return fmt.Sprintf("turn %d: %s: %v", turn, what, err)
				}
			}
			s.sweeps.Wait()
			open, err := os.ReadDir("/dev/fd")
			if err != nil {
				return err.Error()
			}
			if turn == 1 {
				before = len(open)
			}
			if turn > 1 && len(open) > before {
				return fmt.Sprintf("turn %d: %d descriptors are open, and were %d", turn, len(open), before)
			}
		}
		return "ok"
	}()
	fmt.Println(problem)
	return s.Close()
}

// requests makes one request of each kind, or of each that only reads, and returns
// their errors.
func requests(s *Store, readOnly bool) map[string]error {
	ctx, failed := context.Background(), map[string]error{}
	_, _, failed["Lookup"] = s.Lookup(ctx, "name")
	for _, err := range s.List(ctx, "") {
		failed["List"] = err
	}
	s.sweepIdle(ctx, 0)
	if readOnly {
		return failed
	}
	req := request("name", time.Hour)
	_, failed["Acquire"] = s.Acquire(ctx, req)
	_, failed["Renew"] = s.Renew(ctx, []driver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: time.Hour}})
	_, failed["Release"] = s.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: req.Owner})
	_, _, failed["Break"] = s.Break(ctx, driver.BreakRequest{Name: "name"})
	return failed
}

func init() { roles["descriptors"] = roleDescriptors }
