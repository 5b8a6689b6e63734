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
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A state is that of a name, while a request has the kernel lock of its shard.
type state struct {
	shard *shard
	who   actor
	own   *session      // of this Store; nil if there is none yet
	now   time.Duration // by the boot clock, when the shard had been locked

	living  map[string]bool // whether the process of a session lives, if it was examined
	failure error           // the first error of examining one

	header header
	former []*entry // of the name, as they were read
	queue  queue
	broken []entry // what a Break has ended
}

// An actor is the owner that a request is of, and the name that it is for. Lookup and Break have no
// owner. List has no name either: it is for all of a shard.
type actor struct {
	shard       int
	name, owner string
	hash        string // of the owner, which is all that leaves the process; "" for none
	prefix      []byte // with which the public part of each line of the name begins
}

// anyone returns the actor of a request without an owner.
func anyone(name string) actor {
	h := fnv.New32a()
	h.Write([]byte(name))
	return actor{shard: int(h.Sum32() % shardCount), name: name, prefix: fmt.Appendf(nil, `"name":%s,`, encodeJSON(name))}
}

// newActor returns the actor of a request of an owner.
func newActor(name, owner string) actor {
	who := anyone(name)
	who.owner, who.hash = owner, hashOf(owner)
	return who
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

// bury drops what has ended, and the entries of dead processes right before the actor. It looks at
// the holds and the first place, and for a later place at the one before it. It reports whether it
// has dropped one of a dead process. Those elsewhere are dropped by the places right behind them.
func (st *state) bury() (found bool) {
	for again := true; again; {
		again = false
		st.queue.Settle(st.now)
		looked := st.queue.Entries()[:min(len(st.queue.Holds())+1, st.queue.Len())]
		if i := st.index(); i >= len(looked) {
			looked = st.queue.Entries()[i-1 : i]
		}
		for _, e := range slices.Clone(looked) {
			if e.Kept || e.Data.detached && !e.Data.waited || st.isAlive(e.Data.session) {
				continue
			}
			ended, _ := st.queue.Release(e.Owner, 0, st.now)
			again, found = again || ended, found || ended
		}
	}
	return found
}

// acquire makes the entry of a request, whose Owner is the hash of the actor.
func (st *state) acquire(req *driver.Request) (res driver.Result, err error) {
	wall := st.shard.folder.store.host.wall()
	public := encodeJSON(publicData{Name: req.Name, Since: wall.UTC(), Holder: req.Holder, Metadata: req.Metadata})
	data := lineData{session: st.own.id, detached: req.Detached, public: append(public[1:], '\n')}
	tokens := lockqueue.Counter{Last: st.header.Last, Clock: max(0, wall.UnixMicro())}
	own, _, err := st.queue.Acquire(req, data, st.now, &tokens)
	if err == nil && own.State != driver.Held && st.bury() {
		st.queue.Release(req.Owner, 0, st.now)
		own, _, err = st.queue.Acquire(req, data, st.now, &tokens)
	}
	if err != nil {
		return res, err
	}
	st.header.Last = tokens.Last
	res = driver.Result{Granted: own.State == driver.Held, Waiting: own.State == driver.Waiting, Token: own.Token}
	if !res.Granted {
		res.Held = st.record(st.queue.Holds()[0])
	}
	return res, nil
}

// renew prolongs the entry of the actor, whose notices come to this Store from now on.
func (st *state) renew(token int64, ttl time.Duration) driver.Entry {
	own, _ := st.queue.Renew(st.who.hash, token, ttl, st.now)
	if own.State == driver.Waiting && st.bury() {
		own, _ = st.queue.Renew(st.who.hash, token, ttl, st.now)
	}
	if own.State != driver.Lost {
		st.queue.Entries()[st.index()].Data.session = st.own.id
	}
	return own
}

// index returns where the entry of the actor is among all, or -1.
func (st *state) index() int {
	return slices.IndexFunc(st.queue.Entries(), func(e *entry) bool { return e.Owner == st.who.hash })
}

// breakHolds ends the hold or keep with a token, or all for 0, and returns what it has ended.
func (st *state) breakHolds(token int64) (records []driver.Record) {
	st.bury()
	st.broken, _ = st.queue.Break(token, st.now)
	for i := range st.broken {
		records = append(records, st.record(&st.broken[i]))
	}
	return records
}

// holds returns the holds and keeps.
func (st *state) holds() (records []driver.Record, err error) {
	st.bury()
	for _, e := range st.queue.Holds() {
		records = append(records, st.record(e))
	}
	return records, nil
}

// all returns the holds and keeps of all names, where the actor has none.
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
		st.who.name = name
		st.restore(entries[name])
		holds, _ := st.holds()
		records = append(records, holds...)
	}
	st.former, st.queue = nil, queue{} // Nothing is written.
	return records, nil
}

// tell sends the notices to those whose entries have become holds, or were broken.
func (st *state) tell() {
	send := func(e *entry, token int64) {
		switch {
		case e.Kept || e.Owner == st.who.hash:
		case st.own != nil && st.own.id == e.Data.session:
			st.shard.folder.store.notices.Receive(e.Owner, fmt.Sprint(token))
		default:
			_, _ = st.shard.folder.reach(e.Data.session, fmt.Sprintf("%s %d\n", e.Owner, token))
		}
	}
	for _, e := range st.queue.Holds() {
		if e.Data.waited {
			send(e, e.Token)
		}
	}
	for i := range st.broken {
		send(&st.broken[i], 0)
	}
}

// record describes a hold or keep, as clients may see it.
func (st *state) record(e *entry) driver.Record {
	public := e.Data.decodePublic()
	if e.Kept {
		public.Holder, public.Metadata = "", nil
	}
	return driver.Record{
		Name: st.who.name, Holder: public.Holder, Token: e.Token, Since: public.Since, Remaining: e.Until - st.now,
		Kept: e.Kept, Limit: e.Limit, Waiting: st.queue.Waiting(), Metadata: public.Metadata,
	}
}
