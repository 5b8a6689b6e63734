//go:build unix

package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Users without rights of their own. If this process is not root, it has none either, and is all of
// them.
const (
	alice = 65533
	bob   = 65532
	group = 65531 // has both as members
)

// A stage is a folder that every user can enter, and a test binary that all can run.
type stage struct {
	dir    string
	binary string
}

func newStage(t *testing.T) stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "filestore")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary, err := sharedBinary()
	if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return stage{dir: dir, binary: binary}
}

// sharedBinary copies the test binary to where every user can run it, once.
var sharedBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "filestore")
	if err != nil {
		return "", err
	}
	atExit = append(atExit, func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	code, err := os.ReadFile(self)
	path := filepath.Join(dir, "test")
	return path, errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(path, code, 0o755))
})

// as starts a child as a user, with the umask that most users have.
func (s stage) as(t *testing.T, user uint32, role, dir string, args ...string) *child {
	t.Helper()
	cmd := command(role, dir, args...)
	cmd.Args = append([]string{"sh", "-c", `umask 022; exec "$0" "$@"`, s.binary}, cmd.Args[1:]...)
	cmd.Path, cmd.Dir = "/bin/sh", "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{group}}}
	}
	return start(t, cmd)
}

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

// A folder that everybody may write, or that belongs to another user, is refused, and nothing is
// made in it. Root makes no folder in one of another user.
func TestRefusedFolders(t *testing.T) {
	stage := newStage(t)
	refused := map[string][]string{}
	for _, mode := range []fs.FileMode{0o777 | fs.ModeSticky, 0o777, 0o707, 0o2772} {
		dir := makeDir(t, filepath.Join(stage.dir, fmt.Sprintf("%o", uint32(mode))), 0, mode)
		refused[dir] = []string{"every user of this host may write " + dir, "of this user's own", "or one of root"}
	}
	sticky := makeDir(t, filepath.Join(stage.dir, "sticky"), 0, 0o770|fs.ModeSticky)
	refused[sticky] = []string{sticky, "sticky", "chmod -t"}
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
	granted(t, openTest(t, dir), "name", time.Hour)
	checkMode(t, dir, 0o700)
}

// A path that has changed since the store was opened is examined again when the folder is made and
// opened: it may lead to a folder that is refused, or through a link of another user.
func TestRefusedLate(t *testing.T) {
	stage := newStage(t)
	user := os.Geteuid()
	if user == 0 {
		user = alice
	}
	elsewhere := makeDir(t, filepath.Join(stage.dir, "elsewhere"), user, 0o755)
	for what, harm := range map[string]func(dir string) error{
		"everybody": func(dir string) error { return errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o777)) },
		"a link":    func(dir string) error { return os.Symlink(filepath.Join("..", "elsewhere"), filepath.Dir(dir)) },
		"dangling":  func(dir string) error { return os.Symlink(filepath.Join(elsewhere, "new"), filepath.Dir(dir)) },
	} {
		if what == "a link" && os.Geteuid() != 0 {
			continue // This user's own folder is allowed, whatever led there.
		}
		above := makeDir(t, filepath.Join(stage.dir, what), 0, 0o755)
		s := openTest(t, filepath.Join(above, "some", "locks"))
		if err := harm(s.dir); err != nil {
			t.Fatal(err)
		}
		_, err := s.Acquire(t.Context(), request("name", time.Hour))
		if err == nil || !driver.IsNotApplied(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left := files(t, elsewhere); len(left) > 0 {
		t.Errorf("another user's folder has %q", left)
	}
}

// Files in the folder get its permissions and its group, whatever the umask and the user's own
// group. A user with the right to read the folder alone can open no file in it, and so can lock
// none.
func TestPermissions(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	base := t.TempDir()
	for mode, want := range map[fs.FileMode]fs.FileMode{0o700: 0o600, 0o755: 0o600, 0o770: 0o660, 0o775: 0o660, 0o770 | fs.ModeSetgid: 0o660} {
		s := openTest(t, makeDir(t, filepath.Join(base, fmt.Sprintf("%o", uint32(mode))), 0, mode))
		folder, err := os.Stat(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		granted(t, s, "name", time.Hour)
		for _, file := range files(t, s.dir) {
			if file == older {
				continue
			}
			checkMode(t, filepath.Join(s.dir, file), want)
			if info, err := os.Stat(filepath.Join(s.dir, file)); err != nil || want != 0o600 && groupOf(info) != groupOf(folder) {
				t.Errorf("%s is not for the group of the folder: %+v, %v", file, info, err)
			}
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
	if got := info.Mode() &^ (fs.ModeDir | fs.ModeNamedPipe); got != want {
		t.Errorf("%s has the permissions %v, want %v", path, got, want)
	}
}

// Members of a group take turns in a folder that it may write, whatever their umask, and take over
// from each other's dead processes.
func TestTwoUsers(t *testing.T) {
	stage := newStage(t)
	dir := makeDir(t, filepath.Join(stage.dir, "shared"), 0, 0o770|fs.ModeSetgid)
	last := int64(0)
	for range 3 {
		for _, user := range []uint32{alice, bob} {
			rises(t, fmt.Sprint("to user ", user), &last, stage.as(t, user, "acquire", dir, "name").number())
		}
	}
	private := openTest(t, dir)
	granted(t, private, "private", time.Hour)
	if err := os.Chmod(private.pathOf("private"), 0); err != nil {
		t.Fatal(err)
	}
	if line := stage.as(t, bob, "acquire", dir, "private").line(); !strings.Contains(line, "permission denied") {
		t.Errorf("who may not open the file of a held name is told %q", line)
	}
	holder := stage.as(t, alice, "hold", dir, "name", "1h")
	rises(t, "to the first", &last, holder.number())
	waiter := stage.as(t, bob, "hold", dir, "name", "1h")
	if n := waiter.number(); n != 0 {
		t.Fatalf("a held name has the token %d", n)
	}
	holder.kill()
	rises(t, "to the second", &last, waiter.number())
	refused(t, openTest(t, dir), "name")
}

// That a new file has its permissions only a moment after it is made is nobody's error.
func TestManyUsersAtOnce(t *testing.T) {
	stage := newStage(t)
	for i := range 4 {
		dir := makeDir(t, filepath.Join(stage.dir, fmt.Sprint("shared", i)), 0, 0o770|fs.ModeSetgid)
		var children []*child
		for _, user := range []uint32{alice, bob, alice, bob} {
			children = append(children, stage.as(t, user, "share", dir))
		}
		for _, c := range children {
			if _, err := c.in.Write([]byte("go")); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range children {
			c.finish()
		}
	}
}

// A path that cannot be examined for a moment leads to no other folder: what is held stays held.
func TestUnreadablePath(t *testing.T) {
	base := t.TempDir()
	link, dir := filepath.Join(base, "link"), filepath.Join(base, "dir")
	lead := func(to string) {
		t.Helper()
		_ = os.Remove(link)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	lead(makeDir(t, dir, os.Geteuid(), 0o700))
	s := openTest(t, filepath.Join(link, "locks"))
	req, _ := granted(t, s, "name", time.Hour)
	renew := func() ([]driver.Entry, error) {
		return s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: time.Hour}})
	}
	lead(link)
	_, err := renew()
	wantError(t, err, syscall.ELOOP, s.dir)
	wantError(t, err, driver.ErrNotApplied)
	lead(dir)
	refused(t, openTest(t, s.dir), "name")
	if now, err := renew(); err != nil || now[0].State != driver.Held {
		t.Errorf("when the path leads there again: %v, %v", now, err)
	}
}

// A store that is open follows its path, not a folder that was moved away or deleted, or two
// processes would have one lock.
func TestMovedFolder(t *testing.T) {
	for what, away := range map[string]func(dir string) error{
		"moved":   func(dir string) error { return os.Rename(dir, dir+".old") },
		"deleted": os.RemoveAll,
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "folder")
			first := openTest(t, dir)
			next(t, first, "name")
			if err := away(dir); err != nil {
				t.Fatal(err)
			}
			granted(t, openTest(t, dir), "name", time.Hour)
			refused(t, first, "name")
			for _, file := range files(t, dir+".old") {
				if strings.HasPrefix(file, sessionFile("")) {
					t.Errorf("the session in the former folder goes on: %s", file)
				}
			}
		})
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
