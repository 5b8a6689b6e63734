package filestore

import "golang.org/x/sys/unix"

// reachFlags opens a folder in order to reach others in it. The folder need not be readable.
const reachFlags = unix.O_PATH

// renameNoReplace renames a folder to a name that is free.
func renameNoReplace(at int, from, to string) error {
	err := unix.Renameat2(at, from, at, to, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS {
		return unix.Renameat(at, from, at, to) // Not every file system has it.
	}
	return err
}
