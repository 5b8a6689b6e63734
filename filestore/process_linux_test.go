package filestore

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A holder and waiters that die at once, in any order, hold up nobody behind them for long.
func TestManyDieAtOnce(t *testing.T) {
	const dying = 5                  // Those far behind look when their places are renewed.
	limit := 3500 * time.Millisecond // A look is due in 4 s.
	for range 3 {
		dir, last := t.TempDir(), int64(0)
		var line []*child
		for i := range dying + 2 {
			line = append(line, start(t, command("hold", dir, "name", "1h")))
			if n := line[i].number(); n > 0 {
				rises(t, "to the first", &last, n)
			}
		}
		for _, i := range rand.Perm(dying) {
			if err := line[i].Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for _, next := range line[dying:] {
			began := time.Now()
			rises(t, "in line", &last, next.number())
			if took := time.Since(began); took > limit {
				t.Errorf("the next has waited for %v", took)
			}
			next.kill()
		}
	}
}

// A session is made in the folder that is open, not where its path leads by then.
func TestSessionOfAMovedFolder(t *testing.T) {
	dir, elsewhere := filepath.Join(t.TempDir(), "locks"), t.TempDir()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, dir)
	if _, err := s.Lookup(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(dir, dir+"-moved"), os.Symlink(elsewhere, dir)); err != nil {
		t.Fatal(err)
	}
	own, err := s.folder.openSession()
	if err != nil {
		t.Fatal(err)
	}
	defer own.close()
	if left := files(t, elsewhere); len(left) > 0 {
		t.Errorf("%q are where the path leads", left)
	}
}
