package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/holdfast-go/holdfast/driver"
)

// savedTokens is a line of the tokens file, which has three.
//
// The first two are written alternately and then flushed to the disk. If a power loss spoils the
// one that was being written, the other one remains, and nothing depends on the new one yet.
// (Renaming a new file over the old one would do as well, but in a sticky folder only its owner
// may.)
//
// The third is a copy of the line that has been flushed, and the only one that is trusted in the
// same boot: its writer may have been killed before it had flushed one of the others. A copy in the
// place of the older line would have to be flushed, too, before the next change.
type savedTokens struct {
	Format int   `json:"holdfast"`
	Turn   int64 `json:"turn"`
	tokenClock
	Mark int64 `json:"mark"`

	// Sum is the CRC-32 of the line without Sum.
	Sum uint32 `json:"sum,omitempty"`
}

const (
	// slotSize is a page, and at least the unit that a disk writes at once.
	slotSize = 4096

	slotCount   = 3
	flushedSlot = 2 // the slot of the copy
)

// tokenSlots are the lines of the tokens file, zero where they are spoilt.
type tokenSlots [slotCount]savedTokens

// newest returns the line that was written last, zero if there is none.
func (t *tokenSlots) newest() savedTokens {
	newest := t[flushedSlot]
	for _, saved := range t {
		if saved.Turn > newest.Turn {
			newest = saved
		}
	}
	return newest
}

// readTokens reads the line that has been flushed. It does not lock the file: a line that is just
// being written has a wrong sum. The zero value means that there is none.
func (s *Store) readTokens(ctx context.Context) (savedTokens, error) {
	f, err := s.openExisting(ctx, topDir, tokensFile, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return savedTokens{}, nil
	}
	if err != nil {
		return savedTokens{}, wrapOpenErr(s.tokensPath(), err)
	}
	defer f.Close()
	if _, err := f.check(); errors.Is(err, errSwept) {
		return savedTokens{}, nil
	} else if err != nil {
		return savedTokens{}, err
	}
	slots, _, err := readSlots(f.File)
	return slots[flushedSlot], err
}

// readSlots returns the lines of the tokens file, and whether it contains anything at all.
func readSlots(f *os.File) (slots tokenSlots, written bool, err error) {
	data := make([]byte, slotCount*slotSize)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return slots, false, driver.NotApplied(wrapErr("read", f.Name(), err))
	}
	for i := range slots {
		slots[i] = decodeSlot(data[i*slotSize:][:slotSize])
	}
	return slots, len(bytes.Trim(data[:n], "\x00")) > 0, nil
}

// updateTokens brings the tokens file into this boot and its mark above token. The line that it
// returns has been flushed.
func (s *Store) updateTokens(ctx context.Context, token int64) (savedTokens, error) {
	f, slots, err := s.lockTokens(ctx)
	if err != nil {
		return savedTokens{}, err
	}
	defer f.Close()
	before := slots.newest()
	after := s.advanceMark(before, token)
	if after == before && after == slots[flushedSlot] {
		return after, nil
	}
	after.Turn++
	after.Sum = checksum(after)
	if err := s.writeTokens(f, after); err != nil {
		if before.Turn == 0 {
			_ = f.Truncate(0) // Half a line in a new file would be taken for corruption.
		}
		return savedTokens{}, driver.NotApplied(err)
	}
	s.startSweep()
	return after, nil
}

// lockTokens opens, locks and reads the tokens file.
func (s *Store) lockTokens(ctx context.Context) (storeFile, tokenSlots, error) {
	for {
		f, err := s.openOrCreate(ctx, topDir, tokensFile)
		if err != nil {
			return f, tokenSlots{}, wrapOpenErr(s.tokensPath(), err)
		}
		slots, err := readTokensLocked(ctx, f)
		if err == nil {
			return f, slots, nil
		}
		f.Close()
		if !errors.Is(err, errSwept) {
			return f, slots, err
		}
		if err := ctx.Err(); err != nil {
			return f, slots, driver.NotApplied(err)
		}
	}
}

// readTokensLocked locks and reads the tokens file. It returns errSwept if the file was deleted,
// before or by this call: a file that contains nothing is replaced if possible (see lockForUpdate).
// A file that is new, or was new when the power was lost, has no line.
func readTokensLocked(ctx context.Context, f storeFile) (tokenSlots, error) {
	if err := lock(ctx, f.File, exclusive); err != nil {
		return tokenSlots{}, err
	}
	a, err := f.check()
	if err != nil {
		return tokenSlots{}, err
	}
	slots, written, err := readSlots(f.File)
	switch {
	case err != nil || slots.newest().Turn > 0:
		return slots, err
	case written:
		return slots, corruptErr(f.Name(), "no line in it is whole",
			"delete it if the clock of this host is right: tokens then go on from the time of day")
	case f.created || !a.disposable():
		return slots, nil
	}
	if err := f.dir.remove(tokensFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return slots, driver.NotApplied(wrapErr("replace", f.Name(), err))
	}
	return slots, errSwept
}

func (s *Store) writeTokens(f storeFile, saved savedTokens) error {
	slot := encodeSlot(saved)
	if _, err := f.WriteAt(slot, saved.Turn%flushedSlot*slotSize); err != nil {
		return wrapErr("write", f.Name(), err)
	}
	if err := s.host.flush(f.File); err != nil {
		return wrapErr("flush", f.Name(), err)
	}
	if err := f.dir.sync(); err != nil {
		return wrapErr("flush", s.dir, err)
	}
	if _, err := f.WriteAt(slot, flushedSlot*slotSize); err != nil {
		return wrapErr("write", f.Name(), err)
	}
	return nil
}

func encodeSlot(saved savedTokens) []byte {
	saved.Format = recordFormat
	slot := bytes.Repeat([]byte{' '}, slotSize)
	copy(slot, encodeJSON(saved, slotSize))
	slot[slotSize-1] = '\n'
	return slot
}

// decodeSlot returns zero for a line that is not whole, or has a number that the store never
// writes.
func decodeSlot(slot []byte) savedTokens {
	var t savedTokens
	err := json.Unmarshal(slot, &t)
	if err != nil || t.Sum != checksum(t) || t.Turn <= 0 || t.Turn == math.MaxInt64 ||
		t.Mark < 0 || t.Mark > driver.MaxToken || t.Micros <= 0 || t.Micros > driver.MaxToken+1 || t.At < 0 {
		return savedTokens{}
	}
	return t
}

func checksum(saved savedTokens) uint32 {
	saved.Format, saved.Sum = recordFormat, 0
	return crc32.ChecksumIEEE(encodeJSON(saved, slotSize)) | 1 // never 0, which means none
}
