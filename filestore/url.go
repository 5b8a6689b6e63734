package filestore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func init() { driver.Register("file", openURL) }

// DefaultDir returns the folder of the user's own locks: on Linux ~/.local/state/holdfast, on macOS
// ~/Library/Application Support/holdfast, on Windows AppData\Local\holdfast in the user's profile.
// It depends on nothing but the home directory: $XDG_STATE_HOME is set in some sessions of a user
// and not in others, which then would not exclude each other. Root with the home directory of
// another user (sudo -E, sudo on macOS) must name a folder.
func DefaultDir() (string, error) {
	home, err := os.UserHomeDir()
	if err == nil && !filepath.IsAbs(home) {
		err = errors.New("it is not an absolute path")
	}
	if err != nil {
		return "", fmt.Errorf("no folder for locks by default, since the home directory is not known: "+
			"name one, as in file:///path/of/folder: %w", err)
	}
	switch runtime.GOOS {
	case "darwin":
		return filepath.Join(home, "Library", "Application Support", "holdfast"), nil
	case "windows":
		return filepath.Join(home, "AppData", "Local", "holdfast"), nil
	}
	return filepath.Join(home, ".local", "state", "holdfast"), nil
}

func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	query := driver.NewQuery(u)
	opts := &Options{AllowNetwork: query.Bool("allow_network", false)}
	if err := query.Err(); err != nil {
		return nil, err
	}
	if u.Host != "" && u.Host != "localhost" || u.User != nil {
		return nil, fmt.Errorf("%w: the folder is on this host: want file:///absolute/path, file:relative/path, or file: alone",
			driver.ErrInvalid)
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("%w: a # in the path of the folder must be written as %%23", driver.ErrInvalid)
	}
	path, err := u.Path, error(nil)
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return nil, fmt.Errorf("%w: the path of the folder has a %% that must be written as %%25", driver.ErrInvalid)
		}
	}
	if path == "" {
		if path, err = DefaultDir(); err != nil {
			return nil, err
		}
	}
	if first := strings.TrimPrefix(path, "/"); strings.HasPrefix(first, "~") || strings.HasPrefix(first, "$") {
		return nil, fmt.Errorf("%w: nothing expands ~ and variables in the path of the folder: write it out, or ./ before it", driver.ErrInvalid)
	}
	if runtime.GOOS == "windows" {
		path = strings.TrimPrefix(path, "/") // file:///C:/locks
	}
	return New(filepath.FromSlash(path), opts)
}
