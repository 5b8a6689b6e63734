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
	"strings"
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
	former string // the entries as they were read
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

// update makes a request under the kernel lock of a file. Nothing is done if begin, which is called
// when the file is locked, returns false.
func (f *folder) update(
	own *session, file string, who actor, begin func() bool, request func(*state) error,
) error {
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
	err := request(st)
	st.opened.Close() // or nothing, if it is nil
	_ = setLock(lock.file, unlocked)
	if err == nil {
		st.tell()
	}
	return err
}

// apply does a verb on the entries in the file, and writes what has changed. The owners of entries
// that have become holds, apart from the actor, and of those that were broken are notified after
// it. If verb returns an error, nothing is written.
func (st *state) apply(verb func(*state) error) error {
	if err := st.read(); err != nil {
		return err
	}
	if err := cmp.Or(verb(st), st.failure); err != nil {
		return err
	}
	line, err := st.write()
	if err == nil && st.own != nil && st.who.hash != "" {
		st.own.note(st, line) // before others can read the entry, and send a notice
	}
	return err
}

// isAlive reports whether the process of a session lives. It looks at each session once.
func (st *state) isAlive(id string) bool {
	alive, known := st.living[id]
	if known {
		return alive
	}
	alive, err := st.folder.isAlive(id)
	st.living[id], st.failure = alive, cmp.Or(st.failure, err)
	return alive
}

// inForce reports whether neither time nor the death of its process has ended an entry.
func (st *state) inForce(e *entry) bool {
	return e.Until > st.now && (e.Kept || e.Data.detached || st.isAlive(e.Data.session))
}

// read reads the file. Entries of an earlier boot are over, as are the processes that made them.
func (st *state) read() error {
	host := &st.folder.store.host
	st.header = header{name: st.who.name, bootMark: host.bootMark()}
	opened, info, err := st.folder.open(st.file, os.O_RDWR)
	if errors.Is(err, fs.ErrPermission) {
		if there, _ := st.folder.Lstat(st.file); there != nil && there.Size() == 0 {
			err = errUnmade
		}
	}
	var h header
	var entries []entry
	var text string
	if err == nil {
		h, text, err = readHeader(opened)
	}
	if err == nil {
		st.former, entries, err = h.readEntries(opened)
	}
	if err == nil && (st.who.name != "" && h.name != st.who.name || fileName(h.name) != st.file) {
		err = fmt.Errorf("%w: it is that of the name %q", errNotOurs, h.name)
	}
	isTorn := errors.Is(err, errNotOurs) && isCutHeader(text) && host.isOtherBoot(info.ModTime()) && !strings.Contains(text, `"`+host.boot+`"`)
	switch {
	case err == nil:
	case isTorn, errors.Is(err, errUnmade):
		// What was not flushed before a power loss may be cut, or old.
		_ = st.folder.Remove(st.file)
		fallthrough
	case errors.Is(err, fs.ErrNotExist):
		opened.Close() // or nothing, if it is nil
		st.former = ""
		return nil
	default:
		opened.Close()
		if !errors.Is(err, errNotOurs) {
			return st.folder.notApplied("read", st.file, err)
		}
		return corruptErr(st.folder.path(st.file), err.Error(), "look at it, and delete it when nobody holds that lock")
	}
	if !host.isThisBoot(h.bootMark, info.ModTime()) {
		entries = slices.DeleteFunc(entries, func(e entry) bool { return e.Kept || !st.isAlive(e.Data.session) })
	}
	h.bootMark = st.header.bootMark // A step of the clock may have come since the file was made.
	st.opened, st.header = opened, h
	st.queue.Restore(entries)
	if st.queue.Waiting() > 0 {
		st.first = entries[len(st.queue.Holds())].Token
	}
	return nil
}

// bury drops what has ended, and ends the entries of dead processes that are in the way of others:
// those among the holds, the first place, and those right before the actor. It reports whether
// there were any. Other dead ones stay until they are there.
func (st *state) bury() (found bool) {
	st.tellLater(st.queue.Settle(st.now))
	for {
		var dead []string
		entries := st.queue.Entries()
		looked := slices.Clone(entries[:min(len(st.queue.Holds())+1, len(entries))])
		if i := st.index(); i > len(looked) {
			looked = append(looked, entries[i-1])
		}
		for _, e := range looked {
			if !st.inForce(e) {
				dead = append(dead, e.Owner)
			}
		}
		if len(dead) == 0 {
			return found
		}
		for _, owner := range dead {
			st.end(owner, 0)
		}
		found = true
	}
}

// end ends the entry of an owner, or keeps its name, and reports whether there was one.
func (st *state) end(owner string, keep time.Duration) bool {
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
	public := encodeJSON(publicData{
		Since: st.folder.store.host.wall().UTC(), Holder: req.Holder, Metadata: req.Metadata,
	})
	data := entryData{session: st.own.id, detached: req.Detached, public: string(public[1:])}
	c, err := st.lock.readCounter()
	if err != nil {
		return res, err
	}
	tokens := lockqueue.Counter{Last: c.last, Clock: c.clock}
	if n := st.queue.Len(); n > 0 { // Its tokens are greater if the file of the counter was deleted.
		last := st.queue.Entries()[n-1]
		tokens.Last = max(tokens.Last, last.Token+int64(last.Tokens)-1)
	}
	own, promoted, err := st.queue.Acquire(req, data, st.now, &tokens)
	if st.tellLater(promoted); err == nil && own.State != driver.Held && st.bury() {
		st.end(req.Owner, 0)
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
	// Half of the room is left to the other verbs, which change the length of a line by little.
	if st.header.size > mostRead/2 {
		return driver.Result{}, driver.NotApplied(fmt.Errorf(
			"there are too many holds and places of %q: %d are all that fit into %s",
			req.Name, st.queue.Len()-1, shownPath(st.folder.path(st.file))))
	}
	c.last = tokens.Last
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

// prolong renews the entry of the actor without a look at all others, and reports whether it can.
// Nothing but ends may have changed since this Store has written or read them. So a hold is one
// until its end. A place is one as long as the first hold is in force and one of the two excludes
// the other.
func (st *state) prolong(token int64, ttl time.Duration) (driver.Entry, bool) {
	st.own.mu.Lock()
	defer st.own.mu.Unlock()
	known := st.own.entries[st.who.hash]
	if known == nil || known.change == 0 {
		return driver.Entry{}, false
	}
	file, _, err := st.folder.open(st.file, os.O_RDWR)
	if err != nil {
		return driver.Entry{}, false
	}
	defer file.Close()
	h, _, err := readHeader(file)
	if err != nil || h.change != known.change {
		return driver.Entry{}, false
	}
	own, isOwn := readEntry(file, known.line)
	isOwn = isOwn && own.Owner == st.who.hash && own.Until > st.now && (token == 0 || token == own.Token)
	now := driver.Entry{State: driver.Held, Token: own.Token}
	if isOwn && !known.holds {
		first, isFirst := readEntry(file, h.at+int64(len(entriesBegin+" ")))
		isOwn = isFirst && min(first.Limit, own.Limit) == 1 && st.inForce(&first) && st.failure == nil
		now.State = driver.Waiting
	}
	until := max(own.Until, st.now+ttl)
	if !isOwn || !writeEnd(file, own.Data.line, known.line, until) {
		return driver.Entry{}, false
	}
	known.until = until
	return now, true
}

// index returns where the entry of the actor is among all, or -1.
func (st *state) index() int {
	return slices.IndexFunc(st.queue.Entries(), func(e *entry) bool { return e.Owner == st.who.hash })
}

// release ends the entry of the actor.
func (st *state) release(keep time.Duration) bool {
	ended := st.end(st.who.hash, keep)
	if st.queue.Waiting() > 0 {
		st.bury()
	}
	return ended
}

// breakHolds ends the hold or keep that has a token, or all for 0, and returns what it ended.
func (st *state) breakHolds(token int64) (records []driver.Record) {
	st.bury()
	broken, promoted := st.queue.Break(token, st.now)
	st.broken = broken
	st.tellLater(promoted)
	if st.queue.Waiting() > 0 {
		st.bury()
	}
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

// write makes the file that of the state, which a verb has changed, and returns where the line of
// the actor begins in it. That of a free name is deleted.
func (st *state) write() (line int64, err error) {
	if st.queue.Len() == 0 {
		if st.opened == nil {
			return 0, nil
		}
		_ = st.opened.Truncate(0) // An empty file is as none, if it cannot be deleted.
		st.opened.Close()         // Windows does not delete it before.
		return 0, wrapErr("delete", st.folder.path(st.file), st.folder.Remove(st.file))
	}
	entries, begin := encodeEntries(&st.queue, st.who.hash)
	line = st.header.at + int64(begin)
	if string(entries) == st.former || st.writeOwnEnd(entries, begin) {
		return line, nil
	}
	former, isNew := st.header, st.opened == nil
	if isNew {
		st.opened, err = st.folder.create(st.file)
	}
	st.header.change = max(former.change+1, int64(st.now))
	st.header.at, st.header.size = headerSize, int64(len(entries))
	if former.at != 0 && former.at < headerSize+st.header.size { // in the next page that is free
		st.header.at += (former.at + former.size + headerSize - 1) / pageSize * pageSize
	}
	if err == nil {
		_, err = st.opened.WriteAt(entries, st.header.at)
	}
	if err != nil {
		if isNew {
			_ = st.folder.Remove(st.file)
		}
		return 0, st.folder.notApplied("write", st.file, err)
	}
	if _, err := st.opened.WriteAt(st.header.encode(), 0); err != nil {
		return 0, wrapErr("write", st.folder.path(st.file), err)
	}
	end := former.at + former.size
	if !isNew {
		end = max(end, st.header.at) // also up to the new ones behind them
	}
	for at := former.at; at < end; at += int64(len(blank)) {
		_, _ = st.opened.WriteAt(blank[:min(int64(len(blank)), end-at)], at)
	}
	return st.header.at + int64(begin), nil
}

// writeOwnEnd writes the end of the entry of the actor in place, if that is all that has changed,
// and reports whether it has. So the others need not read all entries again.
func (st *state) writeOwnEnd(entries []byte, begin int) bool {
	i := st.index()
	if i < 0 || len(entries) != len(st.former) {
		return false
	}
	own := st.queue.Entries()[i]
	at := begin + strings.Index(string(entries[begin:]), endKey) + len(endKey)
	end := at + endWidth
	return string(entries[:at]) == st.former[:at] && string(entries[end:]) == st.former[end:] &&
		writeEnd(st.opened, own.Data.line, st.header.at+int64(begin), own.Until)
}

// blank takes the place of former entries, which would mislead people.
var blank = bytes.Repeat([]byte(" "), 64<<10)

// tell sends the notices to those whose entries have become holds or were broken. A place that has
// come to the front is told the sessions of the holds, as a number below zero, unless it watches
// that of the only one already, which was the place before it.
func (st *state) tell() {
	send := func(e *entry, token int64, before ...string) {
		switch own := st.own; {
		case e.Kept || e.Owner == st.who.hash:
		case own != nil && own.id == e.Data.session:
			own.send(e.Owner, token, before)
		default:
			st.folder.knock(e.Data.session, e.Owner, token, before)
		}
	}
	for _, e := range st.queue.Holds() {
		if slices.Contains(st.promoted, e.Token) {
			send(e, e.Token)
		}
	}
	for i := range st.broken {
		send(&st.broken[i], 0)
	}
	holds := len(st.queue.Holds())
	places := st.queue.Entries()[holds:]
	if len(places) > 0 && places[0].Token != st.first && (holds > 1 || len(st.promoted) == 0) {
		send(places[0], -1, st.sessionsBefore(1)...)
	}
}

// sessionsBefore returns the sessions whose death brings a place forward: those of the holds if it
// is the first, and otherwise that of the entry before it.
func (st *state) sessionsBefore(position int) (ids []string) {
	holds := len(st.queue.Holds())
	first, last := holds+position-2, holds+position-1
	if position == 1 {
		first, last = 0, min(holds, maxBefore)
	}
	for _, e := range st.queue.Entries()[first:last] {
		if id := e.Data.session; !e.Kept && !e.Data.detached && !slices.Contains(ids, id) {
			ids = append(ids, strings.Clone(id)) // not the file
		}
	}
	return ids
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
