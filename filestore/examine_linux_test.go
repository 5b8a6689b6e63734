package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

const wellFolder = "system ok rights ok space ok inotify ok latency ok probe ok notices ok"

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
	if _, stat := os.Stat(dir); err != nil || len(findings) != 4 || !errors.Is(stat, fs.ErrNotExist) {
		t.Errorf("%v, %v, %v", findings, err, stat)
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
		"inotify": "system ok rights ok space ok inotify warn latency ok probe ok notices ok",
		"space":   "system ok rights ok space warn inotify ok latency ok probe ok notices ok",
		"files":   "system ok rights ok space warn inotify ok latency ok probe ok notices ok",
		"full":    "system ok rights ok space warn inotify ok latency ok probe fail",
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

func init() { roles["examine"] = roleExamine }

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
