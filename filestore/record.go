package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// States of a record.
const (
	stateFree = "free"
	stateHeld = "held"
	stateKept = "kept"
)

// A record is the contents of a name's file: one line of JSON. The zero record is that of a name
// that was never locked.
type record struct {
	Format int64  `json:"holdfast"`
	Name   string `json:"name,omitempty"`
	State  string `json:"state,omitempty"`
	Holder string `json:"holder,omitempty"`
	Token  int64  `json:"token,omitempty"`

	// Last is the last token of a hold that has several.
	Last int64 `json:"last_token,omitempty"`

	// After is the last token of the previous hold. By it a watcher knows that it has missed none.
	After int64 `json:"after,omitempty"`

	// Since and Until are times of day for people. The store uses Boot and Expires.
	Since string `json:"since,omitempty"`
	Until string `json:"until,omitempty"`

	// Metadata is written in plain form if that is possible and short enough. Otherwise it is
	// packed: keys and values alternate, in base64.
	Metadata map[string]string `json:"metadata,omitempty"`
	Packed   [][]byte          `json:"metadata_base64,omitempty"`

	// Owner is the SHA-256 of the owner secret, so that users that may read the folder cannot
	// release the holds of others.
	Owner string `json:"owner_sha256,omitempty"`

	// Boot is the boot in which the record was written. Expires is the time since that boot at
	// which the record expires.
	Boot    string        `json:"boot,omitempty"`
	Expires time.Duration `json:"expires_ns,omitempty"`

	// Session is the session of the holder's process. A hold without one is detached: only its TTL
	// ends it.
	Session string `json:"session,omitempty"`

	// Limit is that of a shared or limited hold.
	Limit int `json:"limit,omitempty"`

	// Tolerant has the holds of a name with shared or limited ones. The fields above then describe
	// none of them.
	Tolerant *tolerantHolds `json:"tolerant,omitempty"`

	line string // of such a hold, as it is in the file; "" if it has changed
}

// detached reports whether a hold outlives the process of its holder.
func (r *record) detached() bool { return r.Session == "" }

// isUnexpired reports whether r is a hold or keep that has not expired.
func (r *record) isUnexpired(h *host) bool {
	return (r.State == stateHeld || r.State == stateKept) && r.Boot == h.boot && h.uptime() < r.Expires
}

// ownedBy reports whether r is the hold, or the keep after it, of an owner.
func (r *record) ownedBy(owner string) bool { return r.Owner == ownerHash(owner) }

func ownerHash(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:])
}

// publicRecord returns the record as other users may see it.
func (r *record) publicRecord(h *host) olddriver.Record {
	remaining := max(r.Expires-h.uptime(), 0)
	since, _ := time.Parse(time.RFC3339Nano, r.Since) // It is for display only.
	return olddriver.Record{
		Name:      r.Name,
		Holder:    printable(r.Holder),
		Token:     r.Token,
		Since:     since,
		Until:     h.wall().Add(remaining),
		Remaining: remaining,
		Kept:      r.State == stateKept,
		Limit:     r.Limit,
		Metadata:  shownMetadata(r.metadata()),
	}
}

// printable returns text without control characters. The store writes none. A user that may write
// the folder can put some in a record, and they change what a terminal shows.
func printable(text string) string {
	return replaceRunes(text, unicode.IsControl)
}

// replaceRunes returns text with U+FFFD in the place of runes for which bad returns true, and of
// what is not UTF-8.
func replaceRunes(text string, bad func(rune) bool) string {
	return strings.Map(func(c rune) rune {
		if bad(c) {
			return utf8.RuneError
		}
		return c
	}, text)
}

// isHostile reports whether c never occurs in honest metadata. Tabs and line ends are common there.
func isHostile(c rune) bool {
	return unicode.IsControl(c) && c != '\t' && c != '\n' && c != '\r'
}

func shownMetadata(m map[string]string) map[string]string {
	for key, value := range m { // Usually there is nothing to change.
		if shown := replaceRunes(key, isHostile); shown != key {
			delete(m, key)
			m[shown] = replaceRunes(value, isHostile)
		} else if shown := replaceRunes(value, isHostile); shown != value {
			m[key] = shown
		}
	}
	return m
}

// setExpiry makes r expire d from now.
func (r *record) setExpiry(d time.Duration, h *host) {
	r.Boot = h.boot
	r.Expires = h.uptime() + d
	r.Until = timeOfDay(h.wall().Add(d))
	r.line = ""
}

func timeOfDay(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// freed returns what remains of r when its hold or keep has ended.
func (r *record) freed() record {
	return record{Name: r.Name, State: stateFree, Token: r.lastToken()}
}

// lastToken returns the last token that was granted for the name.
func (r *record) lastToken() int64 { return max(r.Token, r.Last) }

func (r *record) metadata() map[string]string {
	if len(r.Packed) == 0 {
		return maps.Clone(r.Metadata)
	}
	metadata := make(map[string]string, len(r.Packed)/2)
	for pair := range slices.Chunk(r.Packed, 2) {
		metadata[string(pair[0])] = string(pair[1])
	}
	return metadata
}
