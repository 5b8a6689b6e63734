package redisstore

import (
	"cmp"
	"strconv"
	"strings"
	"sync"
)

// A lock is a key of exactly prefix + name. Its value is the owner's secret on the first line, and
// the public part of the hold on the lines behind: see [fillRecord]. The other keys are:
//
//   - one counter of tokens; in a cluster, one for each hash slot in use,
//   - beside it, only after requests with a floor, a sorted set of the locks with a last token
//     above the counter, and of one member that is no lock,
//   - with a restart guard, its marker,
//   - while a lock has a queue: a sorted set of the owners by their arrival, and a hash of their
//     places: the end in ms, how their clients are notified, tokens, floor, and the public part of
//     the hold; and, for all locks beside the counter, a sign that there may be a queue. A minute after its last entry each of them is gone.
//
// Holders that tolerate each other (olddriver.AcquireRequest.Limit) are in two other keys beside the
// lock: a hash of the owners with what each hold is, and a sorted set of the owners by their ends.
// The value of the lock is "shared:", and the number of this generation of holders, how many they
// are, how many of them are limited, the end of the last of them, at which the key expires, and the end
// of the other two keys. The lock is the truth: without it, or with another value or generation,
// these holders are over, and the first of the next generation deletes what is left of them.
//
// The counter rises at every grant, to the server's clock if it can, and is never raised by a
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
	queuesSuffix  = "\x1fqueues" // the sign
	absentSuffix  = "\x1fabsent"
	noticesSuffix = "\x1fnotices\x1f" // of a channel, before the random part

	// markSuffix follows the owner in the value of a lock that may have a queue. The release of a
	// lock without it does not look at the queue.
	markSuffix = "\x1f"
)

func (s *engine) lockKey(name string) string { return s.prefix + name }

func (s *engine) counterKey(tag string) string { return tag + s.prefix + counterSuffix }

func (s *engine) aheadKey(tag string) string { return tag + s.prefix + aheadSuffix }

func (s *engine) queuesKey(tag string) string { return tag + s.prefix + queuesSuffix }

// absentKey returns a key that never exists. With it among its keys, a script does not run while
// the slot moves: the keys that it does not declare may be on the other node then, and the node that
// takes the slot over would show them as empty.
func (s *engine) absentKey(tag string) string { return tag + s.prefix + absentSuffix }

func (s *engine) guardKey() string { return s.prefix + guardSuffix }

// hashTagOf returns the hash tag of the keys beside the locks. It returns "" without a cluster, and
// if the prefix has a tag of its own, which puts all keys into one slot. A client that takes a node
// of a cluster for a single server has the same counter then. With every other prefix the server
// refuses it, since the counter and the tokens ahead are in different slots.
func (s *engine) hashTagOf(lock string) string {
	if !s.cluster || s.prefixHasTag {
		return ""
	}
	return slotTags()[slotOf(lock)]
}

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
