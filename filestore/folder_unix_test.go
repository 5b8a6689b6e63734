//go:build unix

package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// makeDir makes a folder of a user, if this process can.
func makeDir(tb testing.TB, path string, user int, mode fs.FileMode) string {
	tb.Helper()
	err := os.Mkdir(path, 0o700)
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Chown(path, user, group))
	}
	if err := errors.Join(err, os.Chmod(path, mode)); err != nil {
		tb.Fatal(err)
	}
	return path
}

// A folder that everybody may write, or that belongs to another user, is refused, and nothing is made
// in it. Root makes no folder in one of another user.
func TestRefusedFolders(t *testing.T) {
	stage := newStage(t)
	refused := map[string][]string{}
	for _, mode := range []fs.FileMode{0o777 | fs.ModeSticky, 0o777, 0o707, 0o2772} {
		dir := makeDir(t, filepath.Join(stage.dir, fmt.Sprintf("%o", uint32(mode))), 0, mode)
		refused[dir] = []string{"every user of this host may write " + dir, "of this user's own", "chgrp GROUP"}
	}
	if os.Geteuid() == 0 {
		home := makeDir(t, filepath.Join(stage.dir, "home"), alice, 0o755)
		dir := makeDir(t, filepath.Join(stage.dir, "shared"), alice, 0o770)
		refused[dir] = []string{fmt.Sprintf("%s belongs to the user %d, and this process runs as the user 0", dir, alice), "one of root"}
		refused[filepath.Join(home, ".local", "locks")] = []string{home, fmt.Sprint(alice)}
		line := stage.as(t, bob, "acquire", dir, "name").line()
		if want := fmt.Sprintf("belongs to the user %d, and this process runs as the user %d", alice, bob); !strings.Contains(line, want) {
			t.Errorf("a member of the group is told %q", line)
		}
	}
	for dir, texts := range refused {
		_, err := openAt(t, "file:"+dir)
		wantError(t, err, driver.ErrInvalid, texts...)
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s has %v", dir, left)
		}
	}
	dir := filepath.Join(stage.dir, fmt.Sprintf("%o", uint32(0o777|fs.ModeSticky)), "locks")
	s := openTest(t, dir)
	granted(t, s, "name", time.Hour)
	checkMode(t, dir, 0o700)

	late := openTest(t, filepath.Join(stage.dir, "late"))
	makeDir(t, late.dir, 0, 0o777)
	_, err := late.Acquire(t.Context(), request("name", time.Hour))
	wantError(t, err, driver.ErrInvalid, late.dir)
	if !driver.IsNotApplied(err) {
		t.Errorf("%v may have changed something", err)
	}
}

// Files in the folder get the permissions of the folder, whatever the umask. A user with the right to
// read the folder alone can open no file in it, and so can lock none.
func TestPermissions(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	base := t.TempDir()
	for mode, want := range map[fs.FileMode]fs.FileMode{
		0o700: 0o600, 0o755: 0o600, 0o770: 0o660, 0o770 | fs.ModeSetgid: 0o660, 0o770 | fs.ModeSetgid | fs.ModeSticky: 0o660,
	} {
		dir := makeDir(t, filepath.Join(base, fmt.Sprintf("%o", uint32(mode))), 0, mode)
		s := openTest(t, dir)
		granted(t, s, "name", time.Hour)
		for _, path := range []string{s.recordPath("name"), s.tokensPath(), s.Session().Name()} {
			checkMode(t, path, want)
		}
		for _, name := range []string{locksFolder, sessionsFolder} {
			checkMode(t, filepath.Join(dir, name), mode)
		}
	}
	s := openTest(t, filepath.Join(base, "made", "by", "us"))
	granted(t, s, "name", time.Hour)
	checkMode(t, s.dir, 0o700)
}

func checkMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode() &^ fs.ModeDir; got != want {
		t.Errorf("%s has the permissions %v, want %v", path, got, want)
	}
}

// A file whose maker was killed before it had its permissions gets them from the maker's next request.
func TestHalfMade(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, dir)
	for _, path := range []string{s.recordPath("name"), s.tokensPath()} {
		writeFile(t, path, "")
	}
	granted(t, s, "name", time.Hour)
	for _, path := range []string{s.recordPath("name"), s.tokensPath()} {
		checkMode(t, path, 0o660)
	}
}

// A store that is open follows its path, not a folder that was moved away or deleted, or two processes
// would have one lock.
func TestMovedFolder(t *testing.T) {
	for what, away := range map[string]func(dir string) error{
		"moved":   func(dir string) error { return os.Rename(dir, dir+".old") },
		"deleted": os.RemoveAll,
		"moved, its records": func(dir string) error {
			return os.Rename(filepath.Join(dir, locksFolder), filepath.Join(dir, "old"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "folder")
			first := openTest(t, dir)
			nextIn(t, first, "name")
			if err := away(dir); err != nil {
				t.Fatal(err)
			}
			granted(t, openTest(t, dir), "name", time.Hour)
			recheckFolder(first)
			refused(t, first, "name")
		})
	}
}
