//go:build !linux

package filestore

// exchange reports false: only Linux lets two files change places.
func (f *folder) exchange(string, string) bool { return false }
