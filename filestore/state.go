package filestore

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A state is that of a name, from its file, while a request has the kernel lock.
type state struct {
	folder *folder
	lock   *kernelLock
	file   string
	who    actor
	own    *session      // of this Store; nil if it needs none
	now    time.Duration // of the boot clock, since the name was locked

	living  map[string]bool // the sessions that were examined
	failure error           // of the first that could not be

	opened *os.File // nil if it is missing
	header header
	text   []byte  // what was read
	former []entry // the same
	free   []room  // the same
	queue  queue

	first    int64   // the token of the first place in the file; 0 if there is none
	promoted []int64 // the tokens of entries that have become holds
	broken   []entry
}

// An actor is the owner whose request is made. One without an owner is nobody, and looks at the
// file of any name if it has no name.
type actor struct {
	name, owner string
	hash        string // what is written of the owner
}

// newActor returns the actor of a request. Only the hash of the owner leaves the process.
func newActor(name, owner string) actor {
	sum := sha256.Sum256([]byte(owner))
	return actor{name: name, owner: owner, hash: hex.EncodeToString(sum[:])}
}

// update does a verb on the entries in a file under its kernel lock, and writes what has changed.
// The owners of entries that have become holds, apart from the actor, and of those that were broken
// are notified after it. If verb returns an error, nothing is written. Nothing is done if begin,
// which is called when the file is locked, returns false.
func (f *folder) update(own *session, file string, who actor, begin func() bool, verb func(*state) error) error {
	lock := &f.locks[lockOf(file)]
	if err := lock.lock(); err != nil {
		return err
	}
	if !begin() {
		_ = setLock(lock.file, unlocked)
		return nil
	}
	st := &state{
		folder: f, lock: lock, file: file, who: who, own: own, now: f.store.host.uptime(),
		living: map[string]bool{},
	}
	if own != nil {
		st.living[own.id] = true
	}
	err := st.read()
	if err == nil {
		err = cmp.Or(verb(st), st.failure)
	}
	if err == nil {
		err = st.write()
	}
	if err == nil && own != nil && who.hash != "" {
		own.note(st) // before others can read the entry, and send a notice
	}
	st.opened.Close() // or nothing, if it is nil
	_ = setLock(lock.file, unlocked)
	if err == nil {
		st.tell()
	}
	return err
}

// isAlive reports whether the process of a session lives. It looks at each session once.
func (st *state) isAlive(id string) bool {
	alive, isKnown := st.living[id]
	if !isKnown {
		var err error
		alive, err = st.folder.isAlive(id)
		st.living[id], st.failure = alive, cmp.Or(st.failure, err)
	}
	return alive
}

// inForce reports whether neither time nor the death of its process has ended an entry.
func (st *state) inForce(e *entry) bool {
	holds := st.queue.Holds()
	isDetached := e.Data.detached && e.Token <= holds[len(holds)-1].Token
	return e.Until > st.now && (e.Kept || isDetached || st.isAlive(e.Data.session))
}

// read reads the file. Entries of an earlier boot are over, as are the processes that made them. A
// file whose maker was killed, or of which a power loss has left nothing, is as none.
func (st *state) read() error {
	host := &st.folder.store.host
	st.header = header{st.who.name, host.bootMark()}
	opened, info, err := st.folder.open(st.file, os.O_RDWR)
	isUnmade := false
	if errors.Is(err, fs.ErrPermission) {
		there, _ := st.folder.Lstat(st.file)
		isUnmade = there != nil && there.Size() == 0
	}
	if err == nil {
		st.text, err = st.lock.readAll(opened, info.Size())
		isUnmade = err == nil && len(bytes.Trim(st.text, "\x00")) == 0
	}
	if isUnmade || errors.Is(err, fs.ErrNotExist) {
		if st.text = nil; isUnmade {
			opened.Close() // or nothing, if it is nil
			_ = st.folder.Remove(st.file)
		}
		return nil
	}
	var h header
	if st.opened = opened; err == nil {
		h, st.former, st.free, err = decodeFile(st.text)
	}
	if err == nil && (st.who.name != "" && h.name != st.who.name || fileName(h.name) != st.file) {
		err = fmt.Errorf("%w: it is that of the name %q", errNotOurs, h.name)
	}
	if errors.Is(err, errNotOurs) {
		return corruptErr(st.folder.path(st.file), err.Error(), "look at it, and delete it when nobody holds that lock")
	}
	if err != nil {
		return st.folder.notApplied("read", st.file, err)
	}
	st.header = h
	entries := st.former
	if !host.isThisBoot(h.bootMark, info.ModTime()) {
		entries = slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.Kept || !st.isAlive(e.Data.session) })
	}
	st.queue.Restore(entries)
	if st.queue.Waiting() > 0 {
		st.first = entries[len(st.queue.Holds())].Token
	}
	return nil
}

// bury drops what has ended, and the entries of dead processes right before the actor: those among
// the holds, or the place before its own. It reports whether there were any. Each place looks at
// those before it, so the dead elsewhere are dropped by others.
func (st *state) bury() (found bool) {
	for again := true; again; {
		again = false
		st.tellLater(st.queue.Settle(st.now))
		looked := st.queue.Holds()
		if i := st.index(); i > len(looked) {
			looked = st.queue.Entries()[i-1 : i]
		}
		for _, e := range slices.Clone(looked) {
			if !st.inForce(e) {
				st.release(e.Owner, 0)
				again, found = true, true
			}
		}
	}
	return found
}

// release ends the entry of an owner, or keeps its name, and reports whether there was one.
func (st *state) release(owner string, keep time.Duration) bool {
	ended, promoted := st.queue.Release(owner, keep, st.now)
	st.tellLater(promoted)
	return ended
}

// tellLater has the owners of entries that have become holds notified.
func (st *state) tellLater(promoted []entry) {
	for i := range promoted {
		st.promoted = append(st.promoted, promoted[i].Token)
	}
}

// acquire makes the entry of a request, whose Owner is the hash of the actor.
func (st *state) acquire(req *driver.Request) (res driver.Result, err error) {
	wall := st.folder.store.host.wall()
	public := encodeJSON(publicData{Since: wall.UTC(), Holder: req.Holder, Metadata: req.Metadata})
	data := entryData{session: st.own.id, detached: req.Detached, public: public[1:]}
	c, err := st.lock.readCounter()
	if err != nil {
		return res, err
	}
	tokens := lockqueue.Counter{Last: c.Last, Clock: max(0, wall.UnixMicro())}
	if n := st.queue.Len(); n > 0 { // Its tokens are greater if the file of the counter was deleted.
		last := st.queue.Entries()[n-1]
		tokens.Last = max(tokens.Last, last.Token+int64(last.Tokens)-1)
	}
	own, promoted, err := st.queue.Acquire(req, data, st.now, &tokens)
	if st.tellLater(promoted); err == nil && own.State != driver.Held && st.bury() {
		st.release(req.Owner, 0)
		own, _, err = st.queue.Acquire(req, data, st.now, &tokens)
	}
	if err != nil {
		return res, err
	}
	res = driver.Result{
		Granted: own.State == driver.Held, Waiting: own.State == driver.Waiting, Token: own.Token,
	}
	if !res.Granted {
		res.Held = st.record(st.queue.Holds()[0])
	}
	if own.Token == 0 {
		return res, nil
	}
	c.Last = tokens.Last
	return res, st.lock.writeCounter(c)
}

// renew prolongs the entry of the actor, whose notices come to this Store from now on.
func (st *state) renew(token int64, ttl time.Duration) driver.Entry {
	own, promoted := st.queue.Renew(st.who.hash, token, ttl, st.now)
	if st.tellLater(promoted); own.State == driver.Waiting && st.bury() {
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

// breakHolds ends the hold or keep that has a token, or all for 0, and returns what it ended.
func (st *state) breakHolds(token int64) (records []driver.Record) {
	st.bury()
	broken, promoted := st.queue.Break(token, st.now)
	st.broken = broken
	st.tellLater(promoted)
	for i := range st.broken {
		records = append(records, st.record(&st.broken[i]))
	}
	return records
}

// holds returns the holds and keeps.
func (st *state) holds() (records []driver.Record) {
	st.bury()
	for _, e := range st.queue.Holds() {
		records = append(records, st.record(e))
	}
	return records
}

// write makes the file that of the state, which a verb has changed. That of a free name is deleted.
// The line of the actor is the last to be written: if something fails, its entry is what it was.
func (st *state) write() (err error) {
	live, mark := st.queue.Entries(), st.folder.store.host.bootMark()
	switch {
	case len(live) == 0 && st.opened == nil:
		return nil
	case len(live) == 0:
		st.opened.Close() // Windows does not delete it before.
		return wrapErr("delete", st.folder.path(st.file), st.folder.Remove(st.file))
	case st.opened == nil:
		if st.opened, err = st.folder.create(st.file); err != nil {
			return st.folder.notApplied("write", st.file, err)
		}
		defer func() {
			if err != nil {
				_ = st.folder.Remove(st.file)
			}
		}()
		err = st.put(st.header.encode(), room{0, headerSize})
	case st.who.hash != "" && mark.apart(st.header.bootMark) > time.Second:
		st.header.bootMark = mark // The file is of an earlier boot, or a step of the clock has come.
		err = st.put(st.header.encode(), room{0, headerSize})
	}
	var own room
	for _, e := range st.former {
		switch {
		case err != nil:
			return err
		case len(live) > 0 && live[0].Token == e.Token:
			live = live[1:]
		case e.Owner == st.who.hash:
			own = e.Data.room
		default:
			err = st.put(nil, e.Data.room)
		}
	}
	var line []byte
	if i := st.index(); i >= 0 {
		e := st.queue.Entries()[i]
		line, own = encodeEntry(e), e.Data.room
		if own.size == 0 && err == nil {
			own, err = st.makeRoom(len(line) + 1)
		}
	}
	if err != nil || own.size == 0 {
		return err
	}
	return st.put(line, own)
}

// makeRoom returns a room for a new line: one that is blank, or one at the end.
func (st *state) makeRoom(size int) (room, error) {
	for _, r := range st.free {
		if r.size >= size {
			return r, nil
		}
	}
	r, end := room{size: leastRoom}, len(st.text)
	for r.size < size {
		r.size *= 2
	}
	switch r.at = (end + r.size - 1) / r.size * r.size; {
	case r.size > pageSize:
		return r, fmt.Errorf("%w: the metadata are too long", driver.ErrInvalid)
	case end > mostRead/2:
		return r, driver.NotApplied(fmt.Errorf("there are too many holds and places of %q: %d are all that fit into %s",
			st.header.name, st.queue.Len()-1, shownPath(st.folder.path(st.file))))
	case r.at > end:
		return r, st.put(nil, room{end, r.at - end})
	}
	return r, nil
}

// put writes a line into a room, unless it is there.
func (st *state) put(line []byte, r room) error {
	if len(line) >= r.size {
		return corruptErr(st.folder.path(st.file), errNotOurs.Error(), "delete it when nobody holds that lock")
	}
	former := st.text[min(r.at, len(st.text)):min(r.at+r.size, len(st.text))]
	line = fill(line, r.size)
	if bytes.Equal(former, line) {
		return nil
	}
	if _, err := st.opened.WriteAt(line, int64(r.at)); err != nil { // A part of it may be there.
		_, _ = st.opened.WriteAt(former, int64(r.at))
		_ = st.opened.Truncate(int64(len(st.text)))
		return st.folder.notApplied("write", st.file, err)
	}
	if len(former) == 0 {
		st.text = append(st.text, line...)
	}
	return nil
}

// tell sends the notices to those whose entries have become holds or were broken, and to the places
// that have others before them than those that they watch. The first also gets one when a hold has
// become a keep, which may end earlier.
func (st *state) tell() {
	send := func(e *entry, token int64) {
		switch {
		case e.Kept || e.Owner == st.who.hash:
		case st.own != nil && st.own.id == e.Data.session:
			st.own.take(e.Owner, fmt.Sprint(token))
		default:
			st.folder.knock(e.Data.session, fmt.Sprintf("%s %d\n", e.Owner, token))
		}
	}
	holds, own, former := len(st.queue.Holds()), st.index(), st.former
	isKept := own >= 0 && st.queue.Entries()[own].Kept
	for i, e := range st.queue.Entries() {
		ended := false // of those right before it
		for len(former) > 0 && former[0].Token < e.Token {
			former, ended = former[1:], true
		}
		former = former[min(1, len(former)):]
		isNewFirst := i == holds && e.Token != st.first
		switch {
		case i < holds && slices.Contains(st.promoted, e.Token):
			send(e, e.Token)
		case isNewFirst && (ended || holds > 1), i > holds && ended, i == holds && isKept:
			send(e, watchAnew)
		}
	}
	for i := range st.broken {
		send(&st.broken[i], 0)
	}
}

// before returns the sessions whose death brings a place of this Store forward: those of the holds
// if it is the first, and otherwise that of the entry before it. It also returns when one of these
// entries ends.
func (st *state) before(position int) (ids []string, end time.Duration) {
	looked := st.queue.Holds()
	if position > 1 {
		looked = st.queue.Entries()[len(looked)+position-2:][:1]
	}
	end = driver.MaxTTL + st.now
	for _, e := range looked {
		end = min(end, e.Until)
		isDetached := e.Data.detached && position == 1
		if id := e.Data.session; len(ids) < maxWatches && id != st.own.id && !e.Kept && !isDetached && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, end - st.now
}

// record describes a hold or keep, as clients may see it.
func (st *state) record(e *entry) driver.Record {
	public := e.Data.decodePublic()
	rec := driver.Record{
		Name: st.header.name, Token: e.Token, Since: public.Since, Remaining: e.Until - st.now,
		Kept: e.Kept, Waiting: st.queue.Waiting(),
	}
	if e.Limit > 1 {
		rec.Limit = e.Limit
	}
	if !e.Kept {
		rec.Holder, rec.Metadata = public.Holder, public.Metadata
	}
	return rec
}
