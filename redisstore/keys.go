package redisstore

import (
	"cmp"
	"strconv"
	"strings"
	"sync"
)

// A lock is a key of exactly prefix + name, with the value that the package comment describes. That
// of a keep has the hash of the owner behind released:, and that of holds beside each other, a line
// each, the limits that they have and how many have each; it is the truth: without it, these holds
// are over. The other keys of a lock are:
//
//   - queue, a sorted set of owners: of places by their tokens, and of holds and keeps beside each
//     other by their ends in ms, as numbers below zero,
//   - entries, a hash of what all of these have, by owner.
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
