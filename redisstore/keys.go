package redisstore

import (
	"strconv"
	"strings"
	"sync"
)

// A lock is a key of exactly prefix + name. Its value is the owner's secret on the
// first line, and what everybody may know of the hold on those behind: see
// [fillRecord]. What else there is:
//
//   - one counter of tokens; in a cluster, one for each hash slot in use,
//   - beside it, after requests with a floor only, a sorted set of the locks whose
//     last token is above the counter, and of one member that is no lock,
//   - with a restart guard, its marker.
//
// The counter rises at every grant, to the server's clock if it can, and is never
// raised by a floor: what one lock is asked for changes nothing for the others,
// so that the servers of a quorum, who see different mixtures of them, agree. It
// is a clock that never falls. A lock that was granted more than it says is
// remembered until it has passed that token. That is reckoned with the counter,
// and not with an expiry, since the server's clock may be set forward and back.
//
// In a cluster these keys begin with a hash tag that puts them into the slot of
// the lock, so that one script can touch all. They have a control character,
// which no name and no prefix has: none of them is ever taken for a lock.
const (
	counterSuffix = "\x1fcounter"
	aheadSuffix   = "\x1fahead"
	guardSuffix   = "\x1fguard"
)

func (s *Store) lockKey(name string) string { return s.prefix + name }

func (s *Store) counterKey(tag string) string { return tag + s.prefix + counterSuffix }

func (s *Store) aheadKey(tag string) string { return tag + s.prefix + aheadSuffix }

func (s *Store) guardKey() string { return s.prefix + guardSuffix }

// isOwn reports whether a key is one of those beside the locks.
func isOwn(key string) bool { return strings.Contains(key, "\x1f") }

// tag returns the hash tag of the keys beside the locks, "" without a cluster.
func (s *Store) tag(lock string) string {
	if !s.cluster {
		return ""
	}
	return slotTags()[slotOf(lock)]
}

// hashSlots is the number of hash slots of every Redis Cluster.
const hashSlots = 16384

// slotOf returns the hash slot of a key: by its part between the first { and
// the next } if that is not empty, else by the whole.
func slotOf(key string) uint16 {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if inner, _, ok := strings.Cut(after, "}"); ok && inner != "" {
			key = inner
		}
	}
	return crc16(key) % hashSlots
}

// slotTags has a hash tag for every slot.
var slotTags = sync.OnceValue(func() *[hashSlots]string {
	var tags [hashSlots]string
	for found, n := 0, int64(0); found < hashSlots; n++ {
		text := strconv.FormatInt(n, 36)
		if slot := crc16(text) % hashSlots; tags[slot] == "" {
			tags[slot] = "{" + text + "}"
			found++
		}
	}
	return &tags
})

// crc16 is the checksum that Redis Cluster uses (CRC-16/XMODEM).
func crc16(key string) uint16 {
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// escapePattern makes a pattern of SCAN that matches the text only.
var escapePattern = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace
