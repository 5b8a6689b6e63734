package filestore

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestRootOfNamespace: root of a user namespace uses a folder whose owner has no
// number there, such as one of the host's root in a rootless container.
func TestRootOfNamespace(t *testing.T) {
	stage := newStage(t)
	dir := makeDir(t, filepath.Join(stage.dir, "folder"), 0, 0o777|fs.ModeSticky)
	host, hostGroup := os.Getuid(), os.Getgid()
	if host == 0 {
		host, hostGroup = alice, alice
	}
	cmd := command("attempt", dir, "name")
	cmd.Path, cmd.Dir = stage.binary, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: hostGroup, Size: 1}},
		Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
	}
	c := start(t, cmd)
	if line := c.line(); line != "granted" {
		t.Error(line)
	}
	c.finish()
}
