package command

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestDoctorOfHosts: a host that has too little of something, or enough, in namespaces of its own.
func TestDoctorOfHosts(t *testing.T) {
	t.Parallel()
	mount := func(options string) string { return "mount -t tmpfs -o mode=700," + options + " tmpfs $DIR && " }
	for what, c := range map[string]struct {
		setUp       string
		code        int
		check, says string
	}{
		"no inotify":   {"echo 0 > /proc/sys/user/max_inotify_instances && ", exitWarned, "file.inotify", "fs.inotify.max_user_instances"},
		"little space": {mount("size=512k"), exitWarned, "file.space", "free some space"},
		"few files":    {mount("size=16m,nr_inodes=100"), exitWarned, "file.space", "free some space"},
		"no files":     {mount("size=16m,nr_inodes=1"), exitUnfit, "probe", "no space left"},
		"read-only":    {mount("size=16m,ro"), exitUnfit, "probe", "read-only file system"},
		"open tmpfs":   {strings.Replace(mount("size=16m"), "mode=700", "mode=777", 1), exitWarned, "file.rights", "chmod +t"},
		"enough":       {mount("size=16m,nr_inodes=1000"), 0, "", ""},
		"uncounted":    {mount("size=16m,nr_inodes=0"), 0, "", ""},
		"nothing done": {"", 0, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			dir := folder(t, 0o700)
			const twice = "(holdfast doctor --json; echo $?; ls $DIR/locks 2>/dev/null; holdfast doctor --json; echo $?; ls $DIR/locks 2>/dev/null; true)"
			cmd := exec.Command("/bin/sh", "-c", c.setUp+twice)
			cmd.Env = append(os.Environ(), "HOLDFAST_STORE=file:"+dir, "DIR="+dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p := &patient{code: c.code, check: c.check, says: c.says}
			runs := strings.SplitAfter(string(out), fmt.Sprintf("\n%d\n", c.code))
			if len(runs) != 3 || runs[2] != "" { // after the second there is nothing, not even a name
				t.Fatalf("want exit code %d twice, and no record: %s", c.code, out)
			}
			for _, run := range runs[:2] {
				if !p.shows(t, strings.TrimSuffix(run, fmt.Sprintf("%d\n", c.code))) {
					t.Errorf("want %s with %q:\n%s", c.check, c.says, run)
				}
			}
		})
	}
}
