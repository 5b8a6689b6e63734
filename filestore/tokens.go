package filestore

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Tokens follow a clock of microseconds since 1970 that never steps back. Each boot sets it once,
// to the time of day but above all tokens of earlier boots. Then it advances with the boot clock.
// So the file of a free name can be deleted once the clock has passed its last token.
//
// The upper bound of all tokens of earlier boots is a mark, which survives a power loss. It is
// raised well ahead of the clock, and a token above it is granted only after that.

// markLead is how far ahead of the tokens the mark is raised. It is also the time from one flush to
// the next.
const markLead = int64(10 * time.Minute / time.Microsecond)

// A tokenClock is the contents of clockFile.
type tokenClock struct {
	Format int `json:"holdfast"`
	bootMark

	// The clock was at Micros when the boot clock was at At.
	Micros int64         `json:"clock_us"`
	At     time.Duration `json:"at_ns"`

	Mark int64 `json:"mark"`

	file fs.FileInfo // as it was read or written
}

// now returns the reading of the clock at a reading of the boot clock.
func (c *tokenClock) now(uptime time.Duration) int64 {
	return c.Micros + (uptime - c.At).Microseconds()
}

// tokenClock returns the clock of this boot, with a mark of at least least. It is the one in the
// file: in a container with a boot id of its own, a step of the wall clock looks like a boot, and
// then a process there sets another one.
func (f *folder) tokenClock(ctx context.Context, least int64) (*tokenClock, error) {
	if c := f.clock.Load(); c != nil && least <= c.Mark {
		info, err := f.Lstat(clockFile)
		if err == nil && os.SameFile(info, c.file) && info.ModTime().Equal(c.file.ModTime()) {
			return c, nil
		}
	}
	turn := f.store.turns[clockLock]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, driver.NotApplied(ctx.Err())
	}
	unlock, err := f.lock(ctx, clockLock)
	if err != nil {
		return nil, err
	}
	defer unlock()
	saved, err := f.readClock()
	if err != nil {
		return nil, err
	}
	next, uptime := saved, f.store.host.uptime()
	if known := f.clock.Load(); known != nil && known.Mark >= saved.Mark {
		next = *known // The file was deleted in the meantime, or has not changed.
		next.file = saved.file
	} else if !f.store.host.isThisBoot(saved.bootMark) {
		next = tokenClock{
			Format: fileFormat, bootMark: f.store.host.bootMark(),
			Micros: max(f.store.host.wall().UnixMicro(), saved.Mark+1), At: uptime,
			Mark: saved.Mark, file: saved.file,
		}
	}
	if least = max(least, next.now(uptime)); least > next.Mark {
		next.Mark = min(least+markLead, driver.MaxToken)
	}
	if next != saved {
		if err := f.write(spareOf(clockLock), clockFile, append(encodeJSON(next), '\n'), true); err != nil {
			return nil, driver.NotApplied(err)
		}
		if next.file, err = f.Lstat(clockFile); err != nil {
			return nil, notApplied("examine", f.path(clockFile), err)
		}
	}
	f.clock.Store(&next)
	return &next, nil
}

// readClock reads clockFile. It returns zero if the file is missing.
func (f *folder) readClock() (c tokenClock, err error) {
	contents, info, err := f.read(clockFile)
	if contents == nil || err != nil {
		return c, err
	}
	c.file = info
	err = json.Unmarshal(contents, &c)
	switch {
	case err == nil && c.Format > fileFormat:
		return c, corruptErr(f.path(clockFile), "it is of a later version of this store", "use that version")
	case err != nil || c.Format != fileFormat || c.Micros <= 0 || c.Mark < c.Micros || c.Mark > driver.MaxToken || c.At < 0:
		return c, corruptErr(f.path(clockFile), errNotOurs.Error(),
			"delete it if the clock of this host is right: tokens then go on from the time of day")
	}
	return c, nil
}
