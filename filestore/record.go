package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// States of a record.
const (
	stateFree = "free"
	stateHeld = "held"
	stateKept = "kept"
)

// A record is what the file of a name holds: one line of JSON. The zero record
// is that of a name that was never taken.
type record struct {
	Format int64  `json:"holdfast"`
	Name   string `json:"name"`
	State  string `json:"state"`
	Holder string `json:"holder"`
	Token  int64  `json:"token"`

	// After is the token of the hold before this one, by which a watcher knows
	// that it has missed none.
	After int64 `json:"after"`

	// Since and Until are times of day for people; the store reckons with Boot
	// and Expires.
	Since string `json:"since"`
	Until string `json:"until"`

	// Metadata is written as it is if that is possible and short enough, else
	// packed: as keys and values in turn, in base64.
	Metadata map[string]string `json:"metadata"`
	Packed   [][]byte          `json:"metadata_base64"`

	// Owner is the SHA-256 of the owner secret, so that those who may read the
	// folder cannot release what others hold.
	Owner string `json:"owner_sha256"`

	// Boot and Expires are the boot in which the record was written and the
	// time since that boot at which it expires.
	Boot    string        `json:"boot"`
	Expires time.Duration `json:"expires_ns"`

	// Session is the session of the holder's process. A hold without one is
	// detached: its TTL alone ends it.
	Session string `json:"session"`
}

// detached reports whether a hold outlives the process of its holder.
func (r *record) detached() bool { return r.Session == "" }

// lasts reports whether a hold or keep has not run out.
func (r *record) lasts(h *host) bool {
	return (r.State == stateHeld || r.State == stateKept) && r.Boot == h.boot && h.uptime() < r.Expires
}

// ownedBy reports whether r is the hold, or the keep after it, of an owner.
func (r *record) ownedBy(owner string) bool { return r.Owner == ownerHash(owner) }

// isHeldBy reports whether r is the hold of an owner, and has not run out.
func (r *record) isHeldBy(owner string, h *host) bool {
	return r.State == stateHeld && r.ownedBy(owner) && r.lasts(h)
}

func ownerHash(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:])
}

// public is the record as others may see it.
func (r *record) public(h *host) driver.Record {
	remaining := max(r.Expires-h.uptime(), 0)
	since, _ := time.Parse(time.RFC3339Nano, r.Since) // It is only shown.
	return driver.Record{
		Name:      r.Name,
		Holder:    r.Holder,
		Token:     r.Token,
		Since:     since,
		Until:     h.wall().Add(remaining),
		Remaining: remaining,
		Kept:      r.State == stateKept,
		Metadata:  r.metadata(),
	}
}

// extend lets r last until d from now.
func (r *record) extend(d time.Duration, h *host) {
	r.Boot = h.boot
	r.Expires = h.uptime() + d
	r.Until = timeOfDay(h.wall().Add(d))
}

func timeOfDay(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// free is what is left of r when its hold or keep has ended.
func (r *record) free() record {
	return record{Name: r.Name, State: stateFree, Token: r.Token}
}

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
