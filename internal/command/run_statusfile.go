package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A statusFile is where a status is written. The zero value is nowhere.
type statusFile struct {
	// path has no link in its last element unless the file is written in place.
	path string

	// inPlace means that the file is written into, since it must not be replaced: a device, a
	// pipe, an open file by its descriptor.
	inPlace bool
}

// standardOutput is the statusFile of "-".
var standardOutput = statusFile{path: "-", inPlace: true}

// openStatusFile checks the value of --status-file. It changes nothing.
func openStatusFile(path string) (statusFile, error) {
	switch path {
	case "":
		return statusFile{}, nil
	case "-":
		return standardOutput, nil
	}
	file, err := resolveStatusPath(path)
	if err != nil {
		return statusFile{}, usageError(fmt.Errorf("--status-file: %w", err), "another file")
	}
	return file, nil
}

// removeOld removes the regular file of an earlier run, so that it is not taken for the outcome
// of this one.
func (f statusFile) removeOld() error {
	if f.inPlace || f == (statusFile{}) {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usageError(fmt.Errorf("--status-file: %w", err), "another file")
	}
	return nil
}

// resolveStatusPath follows the links of a path, and decides how the file is written.
func resolveStatusPath(path string) (statusFile, error) {
	if os.IsPathSeparator(path[len(path)-1]) {
		return statusFile{}, fmt.Errorf("%q is a folder", path)
	}
	path, info, err := followLinks(path)
	switch {
	case err != nil:
		return statusFile{}, err
	case isDescriptor(path):
		if info == nil || !isInherited(path) {
			return statusFile{}, fmt.Errorf("%q is not open", path)
		}
		return statusFile{path: path, inPlace: true}, nil
	case info == nil, info.Mode().IsRegular():
		return statusFile{path: path}, nil
	case info.IsDir():
		return statusFile{}, fmt.Errorf("%q is a folder", path)
	case info.Mode()&fs.ModeDevice == 0: // a pipe that any user can create
		if err := checkLinkOwner(filepath.Dir(path), path, info); err != nil {
			return statusFile{}, err
		}
	}
	return statusFile{path: path, inPlace: true}, nil
}

// isDescriptor reports whether a path without links leads to an open file. The target that such
// a link shows is not a name that can be opened.
func isDescriptor(path string) bool {
	return strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/dev/fd/")
}

// followLinks returns a path without links in it, except for one to an open file at its end,
// and what is there, nil if nothing is. It follows only the links that the kernel follows with
// protected_symlinks, whether or not that is set: reading a link, unlike opening it, is not
// subject to that setting.
func followLinks(path string) (string, fs.FileInfo, error) {
	const longestChain = 40
	folder, rest := splitRoot(path)
	for links := 0; ; {
		rest = strings.TrimLeftFunc(rest, isSeparator)
		end := strings.IndexFunc(rest, isSeparator)
		if end < 0 {
			end = len(rest)
		}
		next := filepath.Join(folder, rest[:end])
		rest = strings.TrimLeftFunc(rest[end:], isSeparator)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && rest == "":
			return next, nil, nil
		case errors.Is(err, fs.ErrNotExist), err == nil && rest != "" && info.Mode().IsRegular():
			return "", nil, fmt.Errorf("there is no folder %q", next)
		case err != nil:
			return "", nil, err
		case rest == "" && (info.Mode()&fs.ModeSymlink == 0 || isDescriptor(next)):
			return next, info, nil
		case info.Mode()&fs.ModeSymlink == 0:
			folder = next
			continue
		}
		if links++; links > longestChain {
			return "", nil, fmt.Errorf("%q: %w", path, syscall.ELOOP)
		}
		if err := checkLinkOwner(folder, next, info); err != nil {
			return "", nil, err
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		rest = target + string(filepath.Separator) + rest
		if filepath.IsAbs(target) {
			folder, rest = splitRoot(rest)
		}
	}
}

// splitRoot splits a path into the part that cannot be a link and the rest.
func splitRoot(path string) (at, rest string) {
	at = filepath.VolumeName(path)
	rest = path[len(at):]
	if rest != "" && isSeparator(rune(rest[0])) {
		at += rest[:1]
	}
	return at, rest
}

func isSeparator(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) }

// writeStatus writes a status as one line.
func (f statusFile) writeStatus(s *status) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if f.inPlace {
		return f.appendLine(line)
	}
	return f.replaceFile(line)
}

// appendLine writes to the existing file. It does not wait for a pipe to get a reader, and
// waits at most writeTimeout for the reader to read.
func (f statusFile) appendLine(line []byte) error {
	defer allowTerminalOutput()()
	if f == standardOutput {
		return withTimeout(writeTimeout, func() error {
			_, err := os.Stdout.Write(line)
			return err
		})
	}
	to, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK|syscall.O_NOCTTY|f.noFollowFlag(), 0)
	if err != nil {
		return err
	}
	_ = to.SetWriteDeadline(time.Now().Add(writeTimeout)) // a file without deadlines does not block
	_, err = to.Write(line)
	return errors.Join(err, to.Close())
}

// writeTimeout is how long a reader of a pipe may take.
const writeTimeout = time.Second

// withTimeout returns when do has returned or the time is over. In the latter case do goes on
// running.
func withTimeout(limit time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return os.ErrDeadlineExceeded
	}
}

// replaceFile puts a new file into place in one step.
func (f statusFile) replaceFile(line []byte) error {
	to, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	_, err = to.Write(line)
	if closed := to.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(to.Name(), f.path)
	}
	if err != nil {
		_ = os.Remove(to.Name())
	}
	return err
}
