//go:build unix

package filestore

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// BenchmarkBareLoop is what a pair costs at least: twice to open a file, lock
// it, read it, write it, unlock and close it, as plainly as Go can.
func BenchmarkBareLoop(b *testing.B) {
	path := filepath.Join(b.TempDir(), "bare")
	text := make([]byte, 400)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for range 2 {
			if err := bareTurn(path, text); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func bareTurn(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	if err := syscall.Flock(fd, syscall.LOCK_EX); err != nil {
		return err
	}
	buf := make([]byte, len(text))
	if _, err := f.ReadAt(buf, 0); err != nil {
		return err
	}
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return syscall.Flock(fd, syscall.LOCK_UN)
}
