package command

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// extensions has the names of this program with a store that is a module of its own, by the schemes
// of the store's URLs. Each is the command of the module's name.
var extensions = map[string]string{"etcd": "etcd", "etcds": "etcd", "s3": "s3"}

const extensionPrefix = "holdfast-" // of the names of their programs

// executeForStore executes the program that has the store, with the same arguments, if this one
// lacks it and the other one is there: beside this one, or else on the PATH. One that has the
// name of another executes no further one.
func (s stores) executeForStore() error {
	missing := s.missing()
	if missing == "" || strings.HasPrefix(filepath.Base(os.Args[0]), extensionPrefix) {
		return nil
	}
	self, _ := os.Executable() // without it the folder is the working directory, which LookPath refuses
	for _, name := range []string{filepath.Join(filepath.Dir(self), extensionPrefix+missing), extensionPrefix + missing} {
		if path, err := exec.LookPath(name); err == nil {
			return execute(path, os.Args[1:])
		}
	}
	return nil
}

// missing returns the store of a URL that this program lacks, and a module of its own has, or "".
func (s stores) missing() string {
	for _, text := range s {
		scheme, _, _ := strings.Cut(text, ":")
		if u, err := url.Parse(text); scheme == "quorum" && err == nil {
			if missing := stores(u.Query()["node"]).missing(); missing != "" {
				return missing
			}
		}
		if _, err := driver.Lookup(scheme); err != nil && extensions[scheme] != "" {
			return extensions[scheme]
		}
	}
	return ""
}
