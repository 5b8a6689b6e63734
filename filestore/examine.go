package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Examiner = (*Store)(nil)

// Examine implements [driver.Examiner]. A folder that does not exist yet is not made: what is
// examined is the nearest one above it.
func (s *Store) Examine(ctx context.Context, o driver.Examination) ([]driver.Finding, error) {
	return s.detached.(driver.Examiner).Examine(ctx, o)
}

// Forget implements [driver.Examiner]. It deletes the file of a name that is free, except on
// Windows.
func (s *Store) Forget(ctx context.Context, name string) error {
	return s.detached.(driver.Examiner).Forget(ctx, name)
}

// Examine implements [driver.Examiner].
func (s direct) Examine(_ context.Context, o driver.Examination) ([]driver.Finding, error) {
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	existing := nearestExisting(s.dir)
	info, err := os.Stat(existing)
	if err != nil {
		return nil, wrapErr("examine", existing, err)
	}
	kind, err := networkNameOf(existing)
	if err != nil {
		return nil, wrapErr("examine", existing, err)
	}
	system := driver.Finding{Check: "file.system", Severity: driver.SeverityOK, Found: existing + " is on a local file system"}
	if kind != "" {
		system.Severity = driver.SeverityWarning
		system.Found = fmt.Sprintf("%s is on %s, where file locks and clocks cannot be trusted beyond this host (AllowNetwork)", existing, kind)
		system.Want, system.Remedy = "a local file system", "--store file:///var/lib/locks, or a server for several hosts"
	}
	all := []driver.Finding{system}
	if existing != s.dir {
		all = append(all, driver.Finding{Check: "file.folder", Severity: driver.SeverityNote,
			Found: s.dir + " does not exist yet: the first lock makes it", Want: "the folder that all users of the locks name"})
	}
	if runtime.GOOS != "windows" && existing == s.dir {
		all = append(all, examineRights(s.dir, info))
	}
	if existing == s.dir && !o.NoProbe {
		all = append(all, examineFlock(s.dir))
	}
	return append(all, examineHost(existing)...), nil
}

// examineRights checks that no user without a right to lock can delete records: in the folder, and
// in those of the locks and of the sessions in it, which belong to the owner of the first or to
// root.
func examineRights(dir string, info fs.FileInfo) driver.Finding {
	f := driver.Finding{Check: "file.rights", Severity: driver.SeverityOK, Found: fmt.Sprintf("%s is %v", dir, info.Mode())}
	var open []string
	for _, name := range []string{"", locksFolder, sessionsFolder} {
		path := filepath.Join(dir, name)
		inner, err := os.Lstat(path)
		if name == "" {
			inner, err = info, nil
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: "+err.Error(), "the right to see the folder"
			return f
		case inner.Mode()&0o002 != 0 && inner.Mode()&fs.ModeSticky == 0:
			open = append(open, path)
			f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("%s is %v: every user of this host may delete the locks of others", path, inner.Mode())
			f.Want, f.Remedy = "the sticky bit, or a group that may write", "chmod +t "+strings.Join(open, " ")
		case f.Severity == driver.SeverityOK:
			top, owner := attributesOf(info), attributesOf(inner)
			if owner.uid != top.uid && owner.uid != 0 {
				f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("%s belongs to the user %d, who may delete the locks of others", path, owner.uid)
				f.Want, f.Remedy = fmt.Sprintf("a folder of the user %d, as the one above it", top.uid), fmt.Sprintf("chown %d %s", top.uid, path)
			}
		}
	}
	return f
}

// examineFlock checks that a file that is locked is locked for others, until it is closed. The
// locks of a process are told apart by the open files that have them, so that a second one of this
// process shows what another process would find.
func examineFlock(dir string) driver.Finding {
	f := driver.Finding{Check: "file.flock", Severity: driver.SeverityOK, Found: "a file that is locked is locked for others, until it is closed"}
	const want = "a file system with locks of files (flock)"
	switch found, err := tryFlock(dir); {
	case found != "":
		f.Severity, f.Found = driver.SeverityFailure, dir+": "+found
		f.Want, f.Remedy = want, "a folder on a local file system, or the options of the mount for locks"
	case err != nil:
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: "+err.Error(), want
	}
	return f
}

// tryFlock locks a file of its own in a folder, and returns what is wrong with that. An error means
// that there is no file to try it with.
func tryFlock(dir string) (found string, err error) {
	first, err := os.CreateTemp(dir, "holdfast-doctor-")
	if err != nil {
		return "", err
	}
	defer os.Remove(first.Name())
	defer first.Close()
	second, err := os.OpenFile(first.Name(), os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer second.Close()
	if err := tryLock(first, exclusive); err != nil {
		return fmt.Sprintf("files cannot be locked (%v)", err), nil
	}
	for _, how := range []int{exclusive, shared} {
		if err := tryLock(second, how); err == nil {
			return "a file that is locked can be locked by others: two may hold one lock", nil
		} else if !errors.Is(err, errLocked) {
			return fmt.Sprintf("a file that is locked does not refuse others (%v)", err), nil
		}
	}
	if err := first.Close(); err != nil {
		return "", err
	}
	if err := tryLock(second, exclusive); err != nil {
		return fmt.Sprintf("a file that was locked stays locked when it is closed (%v)", err), nil
	}
	return "", nil
}

// Forget implements [driver.Examiner].
func (s direct) Forget(ctx context.Context, name string) error {
	if err := s.checkRequest(ctx, name); err != nil || !canSweepRecords {
		return err
	}
	f, err := s.openRecord(ctx, name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if len(s.liveHolds(&f.rec)) > 0 {
		return nil
	}
	return f.dir.remove(fileName(name))
}
