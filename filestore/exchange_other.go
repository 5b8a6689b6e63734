//go:build !linux

package filestore

// exchange gives a file the name of another, which is gone then.
func (f *folder) exchange(file, other string) error { return f.Rename(file, other) }
