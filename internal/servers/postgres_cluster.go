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

// A clusterImage is the content of the folder of an empty PostgreSQL cluster. It is kept in
// memory, about 25 MB, because initdb takes a second or more and the test process would
// leave a folder behind.
type clusterImage []clusterFile

type clusterFile struct {
	path string // within the folder
	data []byte
	dir  bool
}

var cachedCluster struct {
	sync.Mutex
	clusterImage
}

// emptyCluster returns the image of a new cluster, which is created once.
func emptyCluster(tb TB) clusterImage {
	tb.Helper()
	cachedCluster.Lock()
	defer cachedCluster.Unlock()
	if cachedCluster.clusterImage == nil {
		dir := filepath.Join(postgresDir(tb), "data")
		postgresTool(tb, "initdb", "--pgdata", dir, "--username=postgres", "--auth=trust", "--encoding=UTF8",
			"--locale=C", "--wal-segsize=1", "--no-sync", "--no-instructions")
		made, err := readCluster(dir)
		if err != nil {
			tb.Fatalf("read what initdb has made: %v", err)
		}
		cachedCluster.clusterImage = made
	}
	return cachedCluster.clusterImage
}

func readCluster(dir string) (clusterImage, error) {
	var c clusterImage
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
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
		c = append(c, file)
		return nil
	})
	return c, err
}

// writeTo writes the cluster to a folder that does not exist yet.
func (c clusterImage) writeTo(dir string, owner *syscall.Credential) error {
	for _, file := range c {
		path := filepath.Join(dir, file.path)
		if err := file.writeFile(path); err != nil {
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

func (f *clusterFile) writeFile(path string) error {
	if f.dir {
		return os.Mkdir(path, 0o700)
	}
	return os.WriteFile(path, f.data, 0o600)
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
