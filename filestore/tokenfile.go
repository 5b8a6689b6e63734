package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
)

// savedTokens is a line of the tokens file, which has three.
//
// The first two are written in turn and then flushed to the disk: if a power
// loss spoils the one that was being written, the other is still there, and
// nothing depends on the new one yet. (Renaming a new file over the old one
// would do as well, but in a sticky folder only its owner may.)
//
// The third is a copy of what has been flushed, and the only one that is trusted
// in the same boot: its writer may have been killed before it had flushed one
// of the others.
type savedTokens struct {
	Format int   `json:"holdfast"`
	Turn   int64 `json:"turn"`
	tokenClock
	Mark int64 `json:"mark"`

	// Sum is the CRC-32 of the line without it.
	Sum uint32 `json:"sum,omitempty"`
}

const (
	// slotSize is a page, and no smaller than what a disk writes as one.
	slotSize = 4096

	slots   = 3
	flushed = 2 // the slot of the copy
)

// readTokens reads what has been flushed. It does not lock the file: a line that
// is just being written has a wrong sum. The zero value stands for nothing.
func (s *Store) readTokens(ctx context.Context) (savedTokens, error) {
	f, err := openFile(ctx, s.tokensPath(), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return savedTokens{}, nil
	}
	if err != nil {
		return savedTokens{}, notApplied(fault("open", s.tokensPath(), err))
	}
	defer f.Close()
	lines, _, err := readSlots(f)
	return lines[flushed], err
}

// readSlots returns the lines of the tokens file, zero where they are spoilt,
// and whether there is anything in the file at all.
func readSlots(f *os.File) (lines [slots]savedTokens, written bool, err error) {
	data := make([]byte, slots*slotSize)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return lines, false, notApplied(fault("read", f.Name(), err))
	}
	for i := range lines {
		lines[i] = decodeSlot(data[i*slotSize:][:slotSize])
	}
	return lines, len(bytes.Trim(data[:n], "\x00")) > 0, nil
}

// newest returns the last line written. In a file that is new, or was when the
// power was lost, there is none.
func newest(f *os.File) (line savedTokens, isFlushed bool, err error) {
	lines, written, err := readSlots(f)
	if err != nil {
		return savedTokens{}, false, err
	}
	for _, saved := range lines {
		if saved.Turn > line.Turn {
			line = saved
		}
	}
	if line.Turn == 0 && written {
		return line, false, corrupt(f.Name(), "no line in it is whole",
			"delete it if the clock of this host is right: tokens then go on from the time of day")
	}
	return line, line == lines[flushed], nil
}

// changeTokens brings the tokens file into this boot and its mark above token.
// What it returns has been flushed.
func (s *Store) changeTokens(ctx context.Context, token int64) (savedTokens, error) {
	f, err := s.openOrCreate(ctx, s.tokensPath())
	if err != nil {
		return savedTokens{}, notApplied(fault("open", s.tokensPath(), err))
	}
	defer f.Close()
	if err := lock(ctx, f, exclusive); err != nil {
		return savedTokens{}, err
	}
	before, isFlushed, err := newest(f)
	if err != nil {
		return savedTokens{}, err
	}
	if before.Turn == 0 {
		s.repair(f)
	}
	after := s.advance(before, token)
	if isFlushed && after == before {
		return before, nil
	}
	after.Turn++
	after.Sum = checksum(after)
	if err := s.writeTokens(f, after); err != nil {
		if before.Turn == 0 {
			_ = f.Truncate(0) // Half a line in a new file would be taken for corruption.
		}
		return savedTokens{}, notApplied(err)
	}
	s.startSweep()
	return after, nil
}

func (s *Store) writeTokens(f *os.File, saved savedTokens) error {
	slot := encodeSlot(saved)
	if _, err := f.WriteAt(slot, saved.Turn%flushed*slotSize); err != nil {
		return fault("write", f.Name(), err)
	}
	if err := s.host.flush(f); err != nil {
		return fault("flush", f.Name(), err)
	}
	if err := syncFolder(s.dir); err != nil {
		return fault("flush", s.dir, err)
	}
	if _, err := f.WriteAt(slot, flushed*slotSize); err != nil {
		return fault("write", f.Name(), err)
	}
	return nil
}

func encodeSlot(saved savedTokens) []byte {
	slot := bytes.Repeat([]byte{' '}, slotSize)
	copy(slot, mustJSON(saved))
	slot[slotSize-1] = '\n'
	return slot
}

func decodeSlot(slot []byte) savedTokens {
	var saved savedTokens
	err := json.Unmarshal(slot, &saved)
	if err != nil || saved.Turn <= 0 || saved.Sum != checksum(saved) {
		return savedTokens{}
	}
	return saved
}

func checksum(saved savedTokens) uint32 {
	saved.Sum = 0
	return crc32.ChecksumIEEE(mustJSON(saved)) | 1 // never 0, which is none
}

func mustJSON(saved savedTokens) []byte {
	saved.Format = recordFormat
	line, err := json.Marshal(saved)
	if err != nil {
		panic(fmt.Sprintf("filestore: numbers and strings have no JSON: %v", err))
	}
	return line
}
