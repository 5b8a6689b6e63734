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

// A cluster is the content of the folder of an empty PostgreSQL cluster. It is
// kept in memory, about 25 MB, since initdb takes a second or more and a folder
// would be left behind by the test process.
type cluster []clusterFile

type clusterFile struct {
	path string // within the folder
	data []byte
	dir  bool
}

var madeCluster struct {
	sync.Mutex
	cluster
}

// emptyCluster returns a new cluster, which is made once.
func emptyCluster(tb TB) cluster {
	tb.Helper()
	madeCluster.Lock()
	defer madeCluster.Unlock()
	if madeCluster.cluster == nil {
		dir := filepath.Join(postgresDir(tb), "data")
		postgresTool(tb, "initdb", "--pgdata", dir, "--username=postgres", "--auth=trust", "--encoding=UTF8",
			"--locale=C", "--wal-segsize=1", "--no-sync", "--no-instructions")
		made, err := pack(dir)
		if err != nil {
			tb.Fatalf("read what initdb has made: %v", err)
		}
		madeCluster.cluster = made
	}
	return madeCluster.cluster
}

func pack(dir string) (cluster, error) {
	var c cluster
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

// unpack writes the cluster to a folder that does not exist yet.
func (c cluster) unpack(dir string, owner *syscall.Credential) error {
	for _, file := range c {
		path := filepath.Join(dir, file.path)
		if err := file.write(path); err != nil {
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

func (f *clusterFile) write(path string) error {
	if f.dir {
		return os.Mkdir(path, 0o700)
	}
	return os.WriteFile(path, f.data, 0o600)
}

// postgresProgram returns the path of a program of the PostgreSQL server. They
// are not on the PATH of Debian, which can have many versions: the newest one is
// taken.
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
	return find(tb, name)
}

// postgresTool runs a program of PostgreSQL to its end.
func postgresTool(tb TB, name string, args ...string) {
	tb.Helper()
	cmd := exec.Command(postgresProgram(tb, name), args...)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: unprivileged(tb)}
	if output, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", name, err, output)
	}
}

// unprivileged returns a user who is not root, since PostgreSQL does not run as
// root; nil if this process does not.
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
