//go:build unix

package filestore

import (
	"context"
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
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Users without rights of their own. If this process is not root, it has none
// either, and is all of them.
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

// as starts a child as a user.
func (s stage) as(t *testing.T, user uint32, role string, args ...string) *child {
	t.Helper()
	cmd := command(role, args...)
	cmd.Path, cmd.Dir = s.binary, "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{group}}}
	}
	return start(t, cmd)
}

// roleAcquire takes and releases a name, and prints what came of it, with the
// umask that most users have.
func roleAcquire(args []string) error {
	syscall.Umask(0o022)
	s, err := newEngine(args[0], nil)
	if err != nil {
		fmt.Println(err)
		return nil
	}
	defer s.Close()
	req := request(args[1], time.Hour)
	res, err := s.Acquire(context.Background(), req)
	if err != nil {
		fmt.Printf("%t %v\n", errors.Is(err, driver.ErrNotApplied), err)
		return nil
	}
	if _, err := s.Release(context.Background(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
		return err
	}
	fmt.Println(res.Token)
	return nil
}

// TestUnwritable: without permission a request says so, names what is in the
// way, and says that nothing was changed.
func TestUnwritable(t *testing.T) {
	stage := newStage(t)
	foreign := makeDir(t, filepath.Join(stage.dir, "foreign"), 0, 0o555)
	for dir, mention := range map[string]string{
		foreign: foreign,
		filepath.Join(foreign, "deeper", "still"): filepath.Join(foreign, "deeper"),
	} {
		line := stage.as(t, alice, "acquire", dir, "name").line()
		for _, text := range []string{"true ", "permission denied", mention, "must be allowed"} {
			if !strings.Contains(line, text) {
				t.Errorf("in %s the error does not mention %q: %s", dir, text, line)
			}
		}
	}
}

// TestTwoUsers: members of a group take turns in a folder that it may write, whatever their umask, and
// take over from each other's dead processes.
func TestTwoUsers(t *testing.T) {
	stage := newStage(t)
	dir := makeDir(t, filepath.Join(stage.dir, "shared"), 0, 0o770|fs.ModeSetgid)
	last := int64(0)
	for range 3 {
		for _, user := range []uint32{alice, bob} {
			rises(t, fmt.Sprint("to user ", user), &last, stage.as(t, user, "acquire", dir, "name").number())
		}
	}
	holder := stage.as(t, alice, "hold", dir, "name", "1h")
	rises(t, "to the first", &last, holder.number())
	refused(t, openTest(t, dir), "name")
	holder.kill()
	successor := stage.as(t, bob, "hold", dir, "name", "1h")
	rises(t, "to the second", &last, successor.number())
	refused(t, openTest(t, dir), "name")
}

// TestManyUsersAtOnce: that a new file has its permissions only a moment after it
// is made is nobody's error.
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

// roleShare waits for its input to begin, and then takes many new names.
func roleShare(args []string) error {
	syscall.Umask(0o077)
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	for i := range 50 {
		if _, err := s.Acquire(context.Background(), request(fmt.Sprint("name", i), time.Hour)); err != nil {
			return err
		}
	}
	return s.Close()
}

func init() {
	roles["acquire"], roles["share"], roles["fill"] = roleAcquire, roleShare, roleFill
}
