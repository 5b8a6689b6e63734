package filestore

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
)

// An inotify is the kernel's queue of events of watched files.
type inotify struct {
	fd   int
	file *os.File // the same; parks its reader in the runtime's poller
}

func newInotify() (*inotify, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify")}, nil
}

// addWatch watches an open file, wherever its path leads by now. It returns the number of the
// watch, which is the same for the same file. It must not be called after the queue was closed.
func (n *inotify) addWatch(f *os.File, mask uint32) (int32, error) {
	wd, err := syscall.InotifyAddWatch(n.fd, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mask)
	return int32(wd), err
}

// removeWatch ends a watch. It fails if the file is gone; its watch is gone then, too.
func (n *inotify) removeWatch(wd int32) { _, _ = syscall.InotifyRmWatch(n.fd, uint32(wd)) }

// readEvents calls handle for each event, with the number of the watch and with what happened to
// its file, until the queue is closed.
func (n *inotify) readEvents(handle func(wd int32, mask uint32)) {
	buf := make([]byte, 16<<10)
	for {
		size, err := n.file.Read(buf)
		if err != nil {
			return
		}
		for data := buf[:size]; len(data) >= syscall.SizeofInotifyEvent; {
			handle(int32(binary.NativeEndian.Uint32(data[0:])), binary.NativeEndian.Uint32(data[4:]))
			nameLen := binary.NativeEndian.Uint32(data[12:])
			data = data[syscall.SizeofInotifyEvent+int(nameLen):]
		}
	}
}
