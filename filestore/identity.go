package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Identifier = (*Store)(nil)

// Identity implements [driver.Identifier]. It returns the path of the folder, without links. The
// folder need not exist yet.
func (s *Store) Identity(context.Context) (string, error) {
	path, err := filepath.Abs(s.dir)
	if err != nil {
		return "", err
	}
	for missing := ""; ; {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(real, missing), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return "", err
		}
		path, missing = filepath.Dir(path), filepath.Join(filepath.Base(path), missing)
	}
}
