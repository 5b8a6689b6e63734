package filestore

import (
	"encoding/binary"
	"os"
	"syscall"
)

// An inotify is the kernel's queue of what happens to watched files.
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

// add watches what path is now, and returns the number of the watch: the same
// for the same file. It must not be called after the file was closed.
func (n *inotify) add(path string, mask uint32) (int32, error) {
	wd, err := syscall.InotifyAddWatch(n.fd, path, mask)
	return int32(wd), err
}

// remove ends a watch. It fails if the file is gone, and the watch with it.
func (n *inotify) remove(wd int32) { _, _ = syscall.InotifyRmWatch(n.fd, uint32(wd)) }

// An event is something that happened to the file of a watch.
type event struct {
	wd   int32
	mask uint32
}

// read waits for events.
func (n *inotify) read(buf []byte) ([]event, error) {
	size, err := n.file.Read(buf)
	if err != nil {
		return nil, err
	}
	var events []event
	for data := buf[:size]; len(data) >= syscall.SizeofInotifyEvent; {
		events = append(events, event{
			wd:   int32(binary.NativeEndian.Uint32(data[0:])),
			mask: binary.NativeEndian.Uint32(data[4:]),
		})
		nameLen := binary.NativeEndian.Uint32(data[12:])
		data = data[syscall.SizeofInotifyEvent+int(nameLen):]
	}
	return events, nil
}
