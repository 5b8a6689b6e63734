package filestore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// inside runs a command as unshare(1) does, as the root of a user namespace, which every user may
// be.
func inside(t *testing.T, cmd *exec.Cmd, flags ...string) *child {
	t.Helper()
	cmd.Args = append(append([]string{"unshare", "--map-root-user"}, flags...), cmd.Path)
	cmd.Path, cmd.Err = exec.LookPath("unshare")
	return start(t, cmd)
}

// Containers share a folder of this host whatever namespaces of their own they have: a process in
// one and a process outside exclude each other, and each learns of the death of the other.
func TestNamespaces(t *testing.T) {
	id := filepath.Join(t.TempDir(), "boot_id")
	writeFile(t, id, "11111111-2222-3333-4444-555555555555\n")
	for what, flags := range map[string][]string{
		"users":     nil,
		"processes": {"--pid", "--fork", "--kill-child", "--mount-proc"},
		"times":     {"--time", "--fork", "--kill-child", "--boottime", "100000", "--monotonic", "5000"},
		"a boot id": {"--mount", "sh", "-c", `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$1"`, id},
	} {
		t.Run(what, func(t *testing.T) {
			dir, last := t.TempDir(), int64(0)
			s := openTest(t, dir)
			for range 2 {
				held, token := granted(t, s, "name", time.Hour)
				rises(t, "outside", &last, token)
				waiter := inside(t, command("hold", dir, "name", "1h"), flags...)
				if line := waiter.line(); line != "0" {
					t.Fatalf("inside it is told %q", line)
				}
				released(t, s, held)
				rises(t, "inside", &last, waiter.number())
				if rec := refused(t, s, "name"); rec.Remaining <= 59*time.Minute || rec.Remaining > time.Hour {
					t.Errorf("outside there remain %v", rec.Remaining)
				}
				waiter.kill()
				if _, err := takeTurn(s, request("name", time.Hour), func() {}); err != nil {
					t.Fatal(err)
				}
				if line := inside(t, command("acquire", dir, "name"), flags...).line(); !strings.HasPrefix(line, "held by") {
					t.Errorf("inside it is told %q", line)
				}
				if _, err := s.Break(t.Context(), "name", 0); err != nil {
					t.Error(err)
				}
				c := inside(t, command("acquire", dir, "name"), flags...)
				rises(t, "inside", &last, c.number())
				c.finish()
			}
		})
	}
}

// Where /proc does not show the process itself, as that of another PID namespace, the clock of its
// time namespace is not known, and it is told so.
func TestForeignProc(t *testing.T) {
	const mount = `mount -t tmpfs none /proc && mkdir -p /proc/sys/kernel/random && cp "$0" /proc/sys/kernel/random/boot_id && exec "$1"`
	id := filepath.Join(t.TempDir(), "boot_id")
	writeFile(t, id, "11111111-2222-3333-4444-555555555555\n")
	c := inside(t, command("acquire", t.TempDir(), "name"), "--mount", "sh", "-c", mount, id)
	if line := c.line(); !strings.Contains(line, "/proc of this PID namespace") {
		t.Errorf("it is told %q", line)
	}
}

// A user namespace in which the owner of the folder has no number is told so.
func TestNamespaceWithoutOwner(t *testing.T) {
	stage := newStage(t)
	dir := makeDir(t, filepath.Join(stage.dir, "locks"), alice, 0o700)
	if os.Geteuid() != 0 {
		return // It is this user's own.
	}
	cmd := command("acquire", dir, "name")
	if line := inside(t, cmd).line(); !strings.Contains(line, "belongs to the user 65534") {
		t.Errorf("it is told %q", line)
	}
}

// TestNetworkFileSystem calls the file system of this test one of the network. Nothing is made
// there.
func TestNetworkFileSystem(t *testing.T) {
	there := t.TempDir()
	dir := filepath.Join(there, "not", "yet", "there")
	var fs syscall.Statfs_t
	if err := syscall.Statfs(there, &fs); err != nil {
		t.Fatal(err)
	}
	networkFileSystems[uint32(fs.Type)] = "NFS"
	defer delete(networkFileSystems, uint32(fs.Type))
	_, err := New(dir, nil)
	wantError(t, err, driver.ErrUnsupported, dir, "NFS", "allow_network")
	if left := files(t, there); len(left) > 0 {
		t.Errorf("what was refused has left %q", left)
	}
	if _, err := openAt(t, "file://"+dir+"?allow_network=true"); err != nil {
		t.Error(err)
	}
}
