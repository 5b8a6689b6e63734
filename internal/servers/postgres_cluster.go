//go:build unix

package servers

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// A clusterFile is a file or folder of an empty PostgreSQL cluster.
type clusterFile struct {
	path string // within the folder of the cluster
	data []byte
	dir  bool
}

// cachedCluster has the files of an empty cluster, about 25 MB: initdb takes a second or more, and
// the test process would leave a folder behind.
var cachedCluster struct {
	sync.Mutex
	files []clusterFile
}

// emptyCluster returns the files of a new cluster, which is created once.
func emptyCluster(tb TB) []clusterFile {
	tb.Helper()
	cachedCluster.Lock()
	defer cachedCluster.Unlock()
	if cachedCluster.files == nil {
		dir := filepath.Join(postgresDir(tb), "data")
		postgresTool(tb, "initdb", "--pgdata", dir, "--username=postgres", "--auth=trust", "--encoding=UTF8",
			"--locale=C", "--wal-segsize=1", "--no-sync", "--no-instructions")
		made, err := readCluster(dir)
		if err != nil {
			tb.Fatalf("read what initdb has made: %v", err)
		}
		cachedCluster.files = made
	}
	return cachedCluster.files
}

func readCluster(dir string) (files []clusterFile, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		file := clusterFile{path: rel, dir: entry.IsDir()}
		if !file.dir {
			if file.data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		files = append(files, file)
		return nil
	})
	return files, err
}

// writeCluster writes a cluster to a folder that does not exist yet.
func writeCluster(files []clusterFile, dir string, owner *syscall.Credential) error {
	for _, file := range files {
		path := filepath.Join(dir, file.path)
		var err error
		if file.dir {
			err = os.Mkdir(path, 0o700)
		} else {
			err = os.WriteFile(path, file.data, 0o600)
		}
		if err != nil {
			return err
		}
		if owner == nil {
			continue
		}
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// postgresProgram returns the path of a program of the PostgreSQL server. On Debian these
// programs are not on the PATH, and there can be many versions: it returns the newest one.
func postgresProgram(tb TB, name string) string {
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
func postgresTool(tb TB, name string, args ...string) {
	tb.Helper()
	cmd := exec.Command(postgresProgram(tb, name), args...)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: unprivileged(tb)}
	if output, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", name, err, output)
	}
}

// unprivileged returns a user other than root, because PostgreSQL does not run as root. It
// returns nil if this process does not run as root.
func unprivileged(tb TB) *syscall.Credential {
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
