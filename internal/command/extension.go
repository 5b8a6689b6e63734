package command

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// etcdProgram is this program with the store in etcd, which is a module of its own.
const etcdProgram = "holdfast-etcd"

// findSibling returns the path of a program beside this one, or else on the PATH; "" if there is
// none.
func findSibling(name string) string {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return ""
}

// executedEnv is set for the program that has the store.
const executedEnv = "HOLDFAST_EXECUTED"

// executeForStore executes the program that has the store, with the same arguments, if this one
// lacks it and the other one is there. If that one lacks it, too, it executes no further one.
func (s *stores) executeForStore() error {
	if os.Getenv(executedEnv) != "" {
		s.executed = true
		_ = os.Unsetenv(executedEnv) // fails for names that are malformed
	}
	if s.executed || !s.needEtcd() {
		return nil
	}
	path := findSibling(etcdProgram)
	if path == "" {
		return nil
	}
	if err := os.Setenv(executedEnv, "1"); err != nil {
		return err
	}
	return execute(path, os.Args[1:])
}

// needEtcd reports whether a URL, or one of a quorum in it, is of etcd, and this program lacks
// that.
func (s *stores) needEtcd() bool {
	if _, linked := driver.Lookup("etcd"); linked {
		return false
	}
	urls := s.urls
	for len(urls) > 0 {
		scheme, _, _ := strings.Cut(urls[0], ":")
		switch scheme {
		case "etcd", "etcds":
			return true
		case "quorum":
			if u, err := url.Parse(urls[0]); err == nil {
				urls = append(urls[1:len(urls):len(urls)], u.Query()["node"]...)
				continue
			}
		}
		urls = urls[1:]
	}
	return false
}
