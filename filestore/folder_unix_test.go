//go:build unix

package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPermissions: what is made in the folder has the folder's permissions,
// whatever the umask.
func TestPermissions(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	base := t.TempDir()
	for mode, want := range map[fs.FileMode][2]fs.FileMode{
		0o700:                                 {0o600, 0o700},
		0o770:                                 {0o660, 0o770},
		0o755:                                 {0o600, 0o755},
		0o777 | fs.ModeSticky:                 {0o666, 0o777 | fs.ModeSticky},
		0o770 | fs.ModeSetgid:                 {0o660, 0o770 | fs.ModeSetgid},
		0o777 | fs.ModeSetgid | fs.ModeSticky: {0o666, 0o777 | fs.ModeSetgid | fs.ModeSticky},
	} {
		dir := filepath.Join(base, fmt.Sprintf("%o", uint32(mode)))
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		s := openTest(t, dir)
		granted(t, s, "name", time.Hour)
		for _, path := range []string{s.recordPath("name"), s.tokensPath(), s.Session().Name()} {
			checkMode(t, path, want[0])
		}
		for _, name := range []string{locksFolder, sessionsFolder} {
			checkMode(t, filepath.Join(dir, name), want[1])
		}
	}
	s := openTest(t, filepath.Join(base, "made", "by", "us"))
	granted(t, s, "name", time.Hour)
	checkMode(t, s.Dir(), 0o700)
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

// TestHalfMade: a file whose maker was killed before it had its permissions gets
// them from the next one who uses it.
func TestHalfMade(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, dir)
	for _, path := range []string{s.recordPath("name"), s.tokensPath()} {
		writeFile(t, path, "")
	}
	granted(t, s, "name", time.Hour)
	for _, path := range []string{s.recordPath("name"), s.tokensPath()} {
		checkMode(t, path, 0o666)
	}
}
