//go:build unix && !linux

package filestore

import "golang.org/x/sys/unix"

// reachFlags opens a folder in order to reach others in it.
const reachFlags = unix.O_RDONLY

// renameNoReplace renames a folder to a name that is free. It may replace an empty folder that
// another process has just made for the same purpose.
func renameNoReplace(at int, from, to string) error { return unix.Renameat(at, from, at, to) }
