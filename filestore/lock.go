package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// lockCount is the number of kernel locks. Each name has one of them.
const lockCount = 64

// lockOf returns the number of the kernel lock of a name's file.
func lockOf(file string) int {
	h := fnv.New32a()
	h.Write([]byte(file))
	return int(h.Sum32() % lockCount)
}

// A kernelLock is one of the kernel locks, as this Store uses it. It is a lock on a file, which
// also has the counter of the tokens. The request that has its turn in the Store uses it.
type kernelLock struct {
	folder  *folder
	name    string    // of the file
	file    *os.File  // nil until it is needed
	written time.Time // the time of the file when it was locked
	text    []byte    // room for a name's file
}

func lockFile(number int) string { return fmt.Sprintf(".lock-%02d", number) }

// lock waits for the lock and takes it. The kernel serves those that wait in order.
func (l *kernelLock) lock() (err error) {
	for {
		if l.file == nil {
			if l.file, err = l.open(); err != nil {
				return err
			}
		}
		if err := setLock(l.file, exclusive); err != nil {
			return l.folder.notApplied("lock", l.name, err)
		}
		if info, err := l.file.Stat(); err == nil && namesOf(info) > 0 {
			l.written = info.ModTime()
			return nil
		}
		l.file.Close() // It was deleted, and another may be in its place.
		l.file = nil
	}
}

// readAll reads the file of a name whole, if it has a size that a store may have written. What it
// returns lasts until the next request: a waiting process has few pages of memory that are in use.
func (l *kernelLock) readAll(file *os.File, size int64) ([]byte, error) {
	if size > mostRead {
		return nil, errNotOurs
	}
	l.text = slices.Grow(l.text[:0], int(size))[:size]
	_, err := file.ReadAt(l.text, 0)
	if err == io.EOF {
		err = nil
	}
	return l.text, err
}

// open opens the file, and makes it if it is missing. It never gives other permissions to a file
// that it finds, which may have been moved there. A file that another user has just made gets its
// permissions a moment later. If that user was killed before, the next one who may open it makes it
// anew: it is empty, and nobody uses it while it is locked.
func (l *kernelLock) open() (*os.File, error) {
	const step, timeout = time.Millisecond, 100 * time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		file, info, err := l.folder.open(l.name, os.O_RDWR)
		if err == nil && info.Size() == 0 && info.Mode().Perm() != l.folder.mode && setLock(file, exclusive) == nil {
			if info, err = file.Stat(); err == nil && info.Size() == 0 && namesOf(info) > 0 {
				_ = l.folder.Remove(l.name)
			}
			file.Close()
			file, _, err = l.folder.open(l.name, os.O_RDWR)
		}
		if errors.Is(err, fs.ErrNotExist) {
			file, err = l.folder.create(l.name)
		}
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrPermission) || waited >= timeout {
			return file, l.folder.notApplied("open", l.name, err)
		}
		time.Sleep(step)
	}
}

// A counter makes the tokens of all names of a kernel lock. It is the contents of the lock's file.
// So the file of a free name can be deleted.
//
// A power loss forgets what was not flushed. So Mark is well ahead of the tokens, and it is flushed
// before a token above the former mark is granted. In the next boot tokens begin above it.
type counter struct {
	Format int `json:"holdfast"`
	bootMark
	Mark    int64 `json:"mark"`
	Flushed int64 `json:"flushed"` // the greatest mark that was surely flushed in this boot
	Last    int64 `json:"last_token"`
	Clock   int64 `json:"clock"` // An earlier version has it.
}

const (
	// markLead is how far ahead the mark is, and so the time from one flush to the next.
	markLead = int64(10 * time.Minute / time.Microsecond)

	// counterSize is that of the file: so a power loss or a kill leaves the former counter, or
	// this.
	counterSize = 512

	counterFormat = 2
)

// readCounter reads the counter as it goes on in this boot.
func (l *kernelLock) readCounter() (c counter, err error) {
	text := make([]byte, counterSize+1)
	n, err := l.file.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return c, l.folder.notApplied("read", l.name, err)
	}
	if text = bytes.Trim(text[:n], "\x00"); len(text) > 0 { // Otherwise nothing was granted yet.
		err := json.Unmarshal(text, &c)
		if err != nil || c.Format != counterFormat || min(c.Mark, c.Flushed, c.Last) < 0 || max(c.Mark, c.Flushed, c.Last) > driver.MaxToken {
			return c, corruptErr(l.folder.path(l.name), errNotOurs.Error(),
				"delete it if the clock of this host is right: tokens then go on from the time of day")
		}
	}
	c.Format = counterFormat
	if host := &l.folder.store.host; !host.isThisBoot(c.bootMark, l.written) {
		c.bootMark, c.Flushed, c.Last = host.bootMark(), 0, max(c.Last, c.Mark)
	}
	return c, nil
}

// writeCounter writes the counter. It flushes it before a token that no mark covers is granted.
func (l *kernelLock) writeCounter(c counter) error {
	write := func() error {
		text := encodeJSON(&c)
		text = append(text, bytes.Repeat([]byte(" "), counterSize-1-len(text))...)
		_, err := l.file.WriteAt(append(text, '\n'), 0)
		if info, _ := l.file.Stat(); err != nil && info != nil && info.Size() < counterSize {
			_ = l.file.Truncate(0) // A part of the first counter is none.
		}
		return l.folder.notApplied("write", l.name, err)
	}
	if c.Last > c.Flushed {
		c.Mark = min(max(c.Last, c.Mark)+markLead, driver.MaxToken)
		if err := write(); err != nil {
			return err
		}
		if err := l.folder.store.host.flush(l.file); err != nil {
			return l.folder.notApplied("flush", l.name, err)
		}
		c.Flushed = c.Mark
	}
	return write()
}
