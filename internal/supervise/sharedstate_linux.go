package supervise

import "golang.org/x/sys/unix"

func memoryFile() (int, error) {
	return unix.MemfdCreate("holdfast", unix.MFD_CLOEXEC)
}
