package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// examined returns the checks with what was found, and the findings.
func examined(s *Store) (checks, text string) {
	findings, err := holdfast.Examine(context.Background(), s, nil)
	for _, f := range findings {
		checks += " " + strings.TrimPrefix(f.Check, "file.") + " " + f.Severity.String()
		if (f.Want == "") != (f.Severity == driver.SeverityOK) {
			checks += "?"
		}
	}
	if err != nil {
		checks += " " + err.Error()
	}
	return strings.TrimSpace(checks), fmt.Sprint(findings)
}

const wellFolder = "system ok rights ok flock ok space ok inotify ok latency ok probe ok notices ok"

// Examinations leave no record, session or hold.
func TestExamine(t *testing.T) {
	dir := t.TempDir()
	holder := openTest(t, dir)
	granted(t, holder, "held", time.Hour)
	before := fmt.Sprint(files(t, filepath.Join(dir, locksFolder)), len(files(t, filepath.Join(dir, sessionsFolder))))
	for range 2 {
		s, err := New(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if checks, text := examined(s); checks != wellFolder {
			t.Errorf("%s\n%s", checks, text)
		}
		if err := s.Forget(t.Context(), "held"); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left := fmt.Sprint(files(t, filepath.Join(dir, locksFolder)), len(files(t, filepath.Join(dir, sessionsFolder)))); left != before {
			t.Errorf("left: %s, before: %s", left, before)
		}
		if _, err := s.Examine(t.Context(), driver.Examination{}); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// A folder that is not there yet is examined without being made.
func TestExamineMissingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	findings, err := holdfast.Examine(t.Context(), openTest(t, dir), &holdfast.ExamineOptions{NoProbe: true})
	if _, stat := os.Stat(dir); err != nil || len(findings) != 5 || !errors.Is(stat, fs.ErrNotExist) {
		t.Errorf("%v, %v, %v", findings, err, stat)
	}
	if note := findings[1].String(); !strings.HasPrefix(note, "note file.folder: "+dir+" does not exist yet") {
		t.Errorf("the note: %s", note)
	}
}

func TestExamineRights(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		0o700: wellFolder, 0o770: wellFolder, 0o777 | fs.ModeSticky: wellFolder,
		0o777: strings.Replace(wellFolder, "rights ok", "rights warn", 1),
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if checks, text := examined(openTest(t, dir)); checks != want || want != wellFolder && !strings.Contains(text, "chmod +t "+dir) {
			t.Errorf("%v: %s\n%s", mode, checks, text)
		}
	}
}

// The folders of the locks and of the sessions are examined, too.
func TestExamineRightsWithin(t *testing.T) {
	for _, inner := range []string{locksFolder, sessionsFolder} {
		dir := t.TempDir()
		holder := openTest(t, dir)
		granted(t, holder, "held", time.Hour)
		path := filepath.Join(dir, inner)
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		ill := strings.Replace(wellFolder, "rights ok", "rights warn", 1)
		if checks, text := examined(openTest(t, dir)); checks != ill || !strings.Contains(text, "chmod +t "+path) {
			t.Errorf("%s that all may write: %s\n%s", inner, checks, text)
		}
		if err := os.Chmod(path, 0o777|fs.ModeSticky); err != nil {
			t.Fatal(err)
		}
		if checks, text := examined(openTest(t, dir)); checks != wellFolder {
			t.Errorf("%s with the sticky bit: %s\n%s", inner, checks, text)
		}
		if os.Geteuid() != 0 {
			continue
		}
		if err := errors.Join(os.Chmod(dir, 0o777|fs.ModeSticky), os.Chown(path, 65534, -1)); err != nil {
			t.Fatal(err)
		}
		if checks, text := examined(openTest(t, dir)); checks != ill || !strings.Contains(text, path+" belongs to the user 65534") {
			t.Errorf("%s of another user: %s\n%s", inner, checks, text)
		}
	}
}

// TestExamineNetwork calls the file system of this test one of the network.
func TestExamineNetwork(t *testing.T) {
	dir := t.TempDir()
	var system syscall.Statfs_t
	if err := syscall.Statfs(dir, &system); err != nil {
		t.Fatal(err)
	}
	networkFileSystems[uint32(system.Type)] = "NFS"
	defer delete(networkFileSystems, uint32(system.Type))
	s, err := New(dir, &Options{AllowNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if checks, text := examined(s); checks != strings.Replace(wellFolder, "system ok", "system warn", 1) || !strings.Contains(text, "is on NFS") {
		t.Errorf("%s\n%s", checks, text)
	}
}

// What this host has too little of, in namespaces of their own.
func TestExamineHost(t *testing.T) {
	for ill, want := range map[string]string{
		"inotify": strings.Replace(wellFolder, "inotify ok", "inotify warn", 1),
		"space":   strings.Replace(wellFolder, "space ok", "space warn", 1),
		"files":   strings.Replace(wellFolder, "space ok", "space warn", 1),
		"full":    "system ok rights ok flock unknown space warn inotify ok latency ok probe fail",
		"none":    wellFolder,
	} {
		cmd := command("examine", ill, t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		c := start(t, cmd)
		if checks := c.line(); checks != want {
			t.Errorf("%s: %s, want %s: %s", ill, checks, want, c.line())
		}
		c.finish()
	}
}

// TestExamineFlock: a system that grants each lock of a file, as some of the network do, one that
// grants none, and one that fails are failures. With --no-probe nothing is tried.
func TestExamineFlock(t *testing.T) {
	for ill, says := range map[string]string{"0": "two may hold one lock", "37": "files cannot be locked", "11": "files cannot be locked"} {
		dir := t.TempDir()
		c := start(t, command("flock", ill, dir))
		if checks := c.line(); !strings.HasPrefix(checks, "system ok rights ok flock fail ") || !strings.Contains(checks, says) {
			t.Errorf("flock answers %s: %s", ill, checks)
		}
		c.finish()
		if left, err := os.ReadDir(dir); err != nil || slices.ContainsFunc(left, func(e fs.DirEntry) bool { return strings.Contains(e.Name(), "doctor") }) {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	findings, err := openTest(t, t.TempDir()).Examine(t.Context(), driver.Examination{NoProbe: true})
	if err != nil || slices.ContainsFunc(findings, func(f driver.Finding) bool { return f.Check == "file.flock" }) {
		t.Errorf("%v, %v", findings, err)
	}
}

func init() { roles["examine"], roles["flock"] = roleExamine, roleFlock }

// roleFlock examines a folder while each flock of this process has a result that the kernel gives
// in place of the call.
func roleFlock(args []string) error {
	errno, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FLOCK, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	s, err := New(args[1], nil)
	if err != nil {
		return err
	}
	defer s.Close()
	checks, text := examined(s)
	fmt.Println(checks, strings.ReplaceAll(text, "\n", " "))
	return nil
}

// roleExamine makes this namespace ill, and examines a folder in it.
func roleExamine(args []string) error {
	ill, dir := args[0], args[1]
	options := map[string]string{"space": "size=512k,mode=700", "files": "size=16m,nr_inodes=100,mode=700", "full": "size=16m,nr_inodes=1,mode=700"}
	if option, ok := options[ill]; ok {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, option); err != nil {
			return err
		}
	}
	if ill == "inotify" {
		if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0o600); err != nil {
			return err
		}
	}
	s, err := New(dir, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	checks, text := examined(s)
	fmt.Println(checks)
	fmt.Println(strings.ReplaceAll(text, "\n", " "))
	return nil
}
