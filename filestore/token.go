package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Tokens follow a clock of microseconds since 1970 that never steps back. Each boot sets it once,
// to the time of day but above all tokens of earlier boots. Then it advances with the boot clock.
// So a record can be deleted once the clock has passed its last token.
//
// The upper bound of all tokens of earlier boots is a mark in the tokens file, which survives a
// power loss. The mark is raised well ahead of the clock, and a token above it is granted only
// after it has been raised.

// markLead is how far ahead of the tokens the mark is raised. It is also the time from one fsync to
// the next.
const markLead = int64(10 * time.Minute / time.Microsecond)

// savedTokens is the token clock of a boot, and the mark. It is a line of the tokens file, which
// has three.
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

	// The clock was at Micros when the clock of Boot was at At.
	Boot   string        `json:"boot"`
	Micros int64         `json:"clock_us"`
	At     time.Duration `json:"at_ns"`

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

func (t *savedTokens) nowMicros(h *host) int64 {
	return t.Micros + (h.uptime() - t.At).Microseconds()
}

// setTokens gives rec the tokens of the next grant of its name, above those of the grant before it.
// The caller has the record locked.
//
// It reports whether rec must be flushed to the disk before it is granted. Its token is then so far
// ahead of the clock, by some caller's floor, that the mark does not cover it. If the mark were
// raised to it, the tokens of all names would be as high from the next boot on.
func (s *engine) setTokens(ctx context.Context, rec *record, req *olddriver.AcquireRequest) (needsFlush bool, err error) {
	saved, err := s.currentTokens(ctx)
	if err != nil {
		return false, err
	}
	now := saved.nowMicros(&s.host)
	latest := max(now, s.host.wall().UnixMicro())
	if req.Floor > latest+driver.MaxLead.Microseconds() {
		return false, fmt.Errorf("%w: the floor %d is more than %v above the clock", driver.ErrInvalid, req.Floor, driver.MaxLead)
	}
	rec.Token = max(rec.After+1, now, req.Floor)
	if rec.Token > driver.MaxToken {
		return false, fmt.Errorf("%w: a token above %d would be needed: the floor, or an earlier one of this name, is too high",
			driver.ErrInvalid, int64(driver.MaxToken))
	}
	if req.Tokens > 1 {
		several := rec.Token + int64(min(req.Tokens, olddriver.MaxTokens)) - 1
		if several <= min(max(now, req.Floor)+olddriver.MaxTokensLead.Microseconds(), driver.MaxToken) {
			rec.Last = several
		}
	}
	last := rec.lastToken()
	if last <= saved.Mark {
		return false, nil
	}
	if last > latest+markLead {
		return true, nil
	}
	_, err = s.updateTokens(ctx, last)
	return false, err
}

// currentTokens returns the token clock of this boot, and the mark as far as this Store knows it.
// It reads the line that has been flushed, without a lock: a line that is just being written has a
// wrong sum.
func (s *engine) currentTokens(ctx context.Context) (*savedTokens, error) {
	if saved := s.tokens.Load(); saved != nil {
		return saved, nil
	}
	f, err := s.openExisting(ctx, "", tokensFile, os.O_RDONLY)
	if err == nil {
		defer f.Close()
		err = f.read()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errSwept):
	case err != nil:
		return nil, err
	default:
		if saved := decodeSlots(f.contents)[flushedSlot]; saved.Boot == s.host.boot {
			s.tokens.Store(&saved)
			return &saved, nil
		}
	}
	return s.updateTokens(ctx, 0)
}

// updateTokens brings the tokens file into this boot and its mark above token. The line that it
// returns has been flushed.
func (s *engine) updateTokens(ctx context.Context, token int64) (*savedTokens, error) {
	f, err := s.lockOrCreate(ctx, "", tokensFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	slots := decodeSlots(f.contents)
	before := slots[flushedSlot]
	for _, saved := range slots {
		if saved.Turn > before.Turn {
			before = saved
		}
	}
	if before.Turn == 0 && !isEmpty(f.contents) {
		return nil, corruptErr(f.Name(), "no line in it is whole",
			"delete it if the clock of this host is right: tokens then go on from the time of day")
	}
	after := before
	if after.Boot != s.host.boot {
		after.Boot, after.Micros, after.At = s.host.boot, max(s.host.wall().UnixMicro(), before.Mark+1), s.host.uptime()
		if known := s.tokens.Load(); known != nil { // The file was deleted in the meantime.
			after.Boot, after.Micros, after.At = known.Boot, known.Micros, known.At
		}
	}
	if token = max(token, after.nowMicros(&s.host)); token > after.Mark {
		after.Mark = min(token+markLead, driver.MaxToken)
	}
	if after != before || after != slots[flushedSlot] {
		after.Turn++
		after.Sum = checksum(after)
		if err := s.writeTokens(f, after); err != nil {
			if before.Turn == 0 {
				_ = f.Truncate(0) // Half a line in a new file would be taken for corruption.
			}
			return nil, driver.NotApplied(err)
		}
		s.startSweep()
	}
	s.tokens.Store(&after)
	return &after, nil
}

func (s *engine) writeTokens(f *storeFile, saved savedTokens) error {
	slot := encodeSlot(saved)
	_, err := f.WriteAt(slot, saved.Turn%flushedSlot*slotSize)
	if err == nil {
		if err := s.flush(f); err != nil {
			return err
		}
		_, err = f.WriteAt(slot, flushedSlot*slotSize)
	}
	return wrapErr("write", f.Name(), err)
}

func encodeSlot(saved savedTokens) []byte {
	saved.Format = recordFormat
	slot := bytes.Repeat([]byte{' '}, slotSize)
	copy(slot, encodeJSON(saved, slotSize))
	slot[slotSize-1] = '\n'
	return slot
}

// decodeSlots returns the lines of the tokens file. It returns zero for a line that is missing or
// not whole, or has a number that the store never writes.
func decodeSlots(contents []byte) (slots [slotCount]savedTokens) {
	for i := range min(slotCount, len(contents)/slotSize) {
		var t savedTokens
		err := json.Unmarshal(contents[i*slotSize:][:slotSize], &t)
		if err == nil && t.Sum == checksum(t) && t.Turn > 0 && t.Turn < math.MaxInt64 &&
			t.Mark >= 0 && t.Mark <= driver.MaxToken && t.Micros > 0 && t.Micros <= driver.MaxToken+1 && t.At >= 0 {
			slots[i] = t
		}
	}
	return slots
}

func checksum(saved savedTokens) uint32 {
	saved.Format, saved.Sum = recordFormat, 0
	return crc32.ChecksumIEEE(encodeJSON(saved, slotSize)) | 1 // never 0, which means none
}
