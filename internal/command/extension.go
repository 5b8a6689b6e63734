package command

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// etcdProgram is this program with the store in etcd, which is a module of its own.
const etcdProgram = "holdfast-etcd"

// executeForStore executes the program that has the store, with the same arguments, if this one
// lacks it and the other one is there: beside this one, or else on the PATH. One that has the
// other's name executes no further one.
func (s stores) executeForStore() error {
	if !s.needEtcd() || strings.HasPrefix(filepath.Base(os.Args[0]), etcdProgram) {
		return nil
	}
	self, _ := os.Executable() // without it the folder is the working directory, which LookPath refuses
	for _, name := range []string{filepath.Join(filepath.Dir(self), etcdProgram), etcdProgram} {
		if path, err := exec.LookPath(name); err == nil {
			return execute(path, os.Args[1:])
		}
	}
	return nil
}

// needEtcd reports whether a URL is of etcd, and this program lacks that.
func (s stores) needEtcd() bool {
	_, linked := driver.Lookup("etcd")
	return !linked && slices.ContainsFunc(s, namesEtcd)
}

// namesEtcd reports whether a URL, or one of a quorum in it, is of etcd.
func namesEtcd(text string) bool {
	scheme, _, _ := strings.Cut(text, ":")
	if scheme == "quorum" {
		u, err := url.Parse(text)
		return err == nil && slices.ContainsFunc(u.Query()["node"], namesEtcd)
	}
	return scheme == "etcd" || scheme == "etcds"
}
