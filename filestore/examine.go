package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

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
func (s direct) Examine(context.Context, driver.Examination) ([]driver.Finding, error) {
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
	if runtime.GOOS != "windows" && existing == s.dir {
		all = append(all, examineRights(s.dir, info.Mode()))
	}
	return append(all, examineHost(existing)...), nil
}

// examineRights checks that only those who may lock can delete records.
func examineRights(dir string, mode fs.FileMode) driver.Finding {
	f := driver.Finding{Check: "file.rights", Severity: driver.SeverityOK, Found: fmt.Sprintf("%s is %v", dir, mode)}
	if mode&0o002 != 0 && mode&fs.ModeSticky == 0 {
		f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("%s is %v: every user of this host may delete the locks of others", dir, mode)
		f.Want, f.Remedy = "the sticky bit, or a group that may write", fmt.Sprintf("chmod +t %s %s/%s %s/%s", dir, dir, locksFolder, dir, sessionsFolder)
	}
	return f
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
