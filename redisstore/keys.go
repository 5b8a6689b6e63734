package redisstore

import (
	"cmp"
	"strconv"
	"strings"
	"sync"
)

// A lock is the key prefix + name. Without that key nobody holds the lock, whatever the other keys
// have. The package comment describes the value of an exclusive hold. That of a keep has released:
// and the hash of the owner in place of the owner. The value of shared and limited holds is shared:
// and a line for each limit, with how many holds have it. The other keys of a lock are:
//
//   - queue, a sorted set of owners. The score of a place is its token, and that of a hold or keep
//     its end in ms, as a number below zero,
//   - entries, a hash by owner, of all that is in the queue: see lua/queue.lua.
//
// The counter rises with every request, to the server's clock if it can, and is never raised by a
// floor: a floor for one lock changes nothing for the others, so the servers of a quorum, which see
// different mixtures of them, agree. The counter is a clock that never falls. A lock that was
// granted a token above it is remembered until the counter has passed that token. That is decided
// by the counter, and not by an expiry, since the server's clock may be set forward and back.
//
// In a cluster these keys begin with a hash tag that puts them into the slot of the lock, so that
// one script can use all. They have a control character, which no name and no prefix has: none of
// them is ever taken for a lock.
const (
	counterSuffix = "\x1fcounter"
	aheadSuffix   = "\x1fahead"
	guardSuffix   = "\x1fguard"
	noticesSuffix = "\x1fnotices\x1f" // of a channel, before the random part
	queueInfix    = "\x1fqueue\x1f"   // before the key of the lock
	entriesInfix  = "\x1fentries\x1f"
)

// hashSlots is the number of hash slots of every Redis Cluster.
const hashSlots = 16384

// slotOf returns the hash slot of a key: by its part between the first { and the next } if that is
// not empty, else by the whole.
func slotOf(key string) uint16 {
	return crc16(cmp.Or(hashTag(key), key)) % hashSlots
}

// hashTag returns the part of a key that determines its slot, or "" if that is the whole.
func hashTag(key string) string {
	_, after, _ := strings.Cut(key, "{")
	inner, _, closed := strings.Cut(after, "}")
	if !closed {
		return ""
	}
	return inner
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
func crc16(key string) (crc uint16) {
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return crc
}

// escapePattern makes a pattern of SCAN that matches the text only.
var escapePattern = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace
