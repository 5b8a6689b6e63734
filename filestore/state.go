package filestore

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
)

// A state is a request, and what it finds of its name under the kernel lock of the shard. Lookup
// and Break have no owner. List has no name either: it is for all of a shard.
type state struct {
	number      int // of the shard
	name, owner string
	hash        string // of the owner, which is all that leaves the process
	prefix      []byte // with which the public part of each line of the name begins
	adds        []byte // the public part of the line that an Acquire adds

	shard *shard
	own   *session      // of this Store; nil if there is none yet
	now   time.Duration // by the boot clock, when the shard had been locked

	living  map[string]bool // whether the process of a session lives, if it was examined
	failure error           // the first error of examining one

	header header
	former []*entry // of the name, as they were read
	held   int64    // the token of the last hold then; those above it waited
	room   int      // where the line of a new entry fits
	queue  queue
	broken []entry // what a Break has ended
}

func newState(name, owner string) *state {
	h := fnv.New32a()
	h.Write([]byte(name))
	return &state{
		number: int(h.Sum32() % shardCount), name: name, owner: owner, hash: hashOf(owner),
		prefix: fmt.Appendf(nil, `"name":%s,`, encodeJSON(name)),
	}
}

func hashOf(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:])
}

// isAlive reports whether the process of a session may be alive. It looks at each session once.
func (st *state) isAlive(id string) bool {
	alive, isKnown := st.living[id]
	if !isKnown {
		var err error
		alive, err = st.shard.folder.reach(id, "")
		st.living[id], st.failure = alive, cmp.Or(st.failure, err)
	}
	return alive
}

// bury drops what has ended by its time, and the holds and the first place if their processes are
// dead, until all of these live. It reports whether it has dropped one of a dead process.
func (st *state) bury() (found bool) {
	st.queue.Settle(st.now)
	for _, e := range slices.Clone(st.queue.Entries()[:min(len(st.queue.Holds())+1, st.queue.Len())]) {
		if !e.Kept && (!e.Data.detached || e.Token > st.held) && !st.isAlive(e.Data.session) {
			ended, _ := st.queue.Release(e.Owner, 0, st.now)
			found = found || ended
		}
	}
	if found { // Others are in front now.
		st.bury()
	}
	return found
}

// holds returns the holds and keeps.
func (st *state) holds() (records []driver.Record, err error) {
	st.bury()
	for _, e := range st.queue.Holds() {
		records = append(records, st.record(e))
	}
	return records, st.failure
}

// all returns the holds and keeps of all names, where the request has none, also those of which it
// is not known whether their processes live.
func (st *state) all() (records []driver.Record, err error) {
	entries := map[string][]*entry{}
	for _, e := range st.former {
		name := e.Data.decodePublic().Name
		entries[name] = append(entries[name], e)
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if name == "" || strings.ContainsFunc(name, unicode.IsControl) {
			return nil, st.shard.folder.corrupt(st.shard.name, notOurs)
		}
		st.name = name
		st.queue = queue{Grain: clockStep}
		st.queue.Restore(entries[name]...)
		for _, e := range st.queue.Holds() {
			st.held = e.Token
		}
		holds, _ := st.holds()
		records = append(records, holds...)
	}
	st.former, st.queue = nil, queue{} // Nothing is written.
	return records, nil
}

// notify sends a notice to the owner of a hold: its token, or 0 for one that was broken.
func (st *state) notify(e *entry, token int64) {
	switch {
	case e.Kept:
	case st.own != nil && st.own.id == e.Data.session:
		st.shard.folder.store.notices.Receive(e.Owner, fmt.Sprint(token))
	default:
		_, _ = st.shard.folder.reach(e.Data.session, fmt.Sprintf("%s %d\n", e.Owner, token))
	}
}

// record describes a hold or keep, as clients may see it.
func (st *state) record(e *entry) driver.Record {
	public := e.Data.decodePublic()
	if e.Kept {
		public.Holder, public.Metadata = "", nil
	}
	return driver.Record{
		Name: st.name, Holder: public.Holder, Token: e.Token, Since: public.Since, Remaining: e.Until - st.now,
		Kept: e.Kept, Limit: e.Limit, Waiting: st.queue.Waiting(), Metadata: public.Metadata,
	}
}
