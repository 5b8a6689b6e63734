//go:build unix

package servers

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// cachedCluster is an archive of an empty cluster, about 25 MB: initdb takes a second or more, and
// the test process would leave a folder behind.
var cachedCluster struct {
	sync.Mutex
	archive []byte
}

// createCluster creates an empty cluster, in the folder data of dir.
func createCluster(tb testing.TB, dir string) {
	tb.Helper()
	cachedCluster.Lock()
	defer cachedCluster.Unlock()
	if cachedCluster.archive != nil {
		runTool(tb, cachedCluster.archive, "tar", "-xf", "-", "-C", dir)
		return
	}
	postgresTool(tb, "initdb", "--pgdata", filepath.Join(dir, "data"), "--username=postgres", "--auth=trust", "--encoding=UTF8",
		"--locale=C", "--wal-segsize=1", "--no-sync", "--no-instructions")
	cachedCluster.archive = runTool(tb, nil, "tar", "-cf", "-", "-C", dir, "data")
}

// postgresProgram returns the path of a program of the PostgreSQL server. On Debian these programs
// are not on the PATH, and there can be many versions: it returns the newest one.
func postgresProgram(tb testing.TB, name string) string {
	tb.Helper()
	var folders []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"} {
		found, _ := filepath.Glob(pattern) // The patterns are well formed.
		slices.Reverse(found)
		folders = append(folders, found...)
	}
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return findProgram(tb, name)
}

// postgresTool runs a program of PostgreSQL and waits for its exit.
func postgresTool(tb testing.TB, name string, args ...string) {
	tb.Helper()
	runTool(tb, nil, postgresProgram(tb, name), args...)
}

// runTool runs a program as the user of the servers, and returns its output.
func runTool(tb testing.TB, input []byte, path string, args ...string) []byte {
	tb.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdin = os.TempDir(), bytes.NewReader(input)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: unprivileged(tb)}
	var failure bytes.Buffer
	cmd.Stderr = &failure
	output, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v\n%s", path, err, failure.Bytes())
	}
	return output
}

// unprivileged returns a user other than root, because PostgreSQL does not run as root. It returns
// nil if this process does not run as root.
func unprivileged(tb testing.TB) *syscall.Credential {
	tb.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
		if errors.Join(err, err2) == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	tb.Fatal("PostgreSQL does not run as root, and there is no user postgres and no user nobody")
	return nil
}
