package filestore

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
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
	holds := st.queue.Holds()
	isDetached := e.Data.detached && e.Token <= holds[len(holds)-1].Token
	return e.Until > st.now && (e.Kept || isDetached || st.isAlive(e.Data.session))
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
	if err == nil {
		st.text, err = st.lock.readAll(opened, info.Size())
	}
	if err == nil {
		h, entries, st.free, err = decodeFile(st.text)
	}
	if err == nil && (st.who.name != "" && h.name != st.who.name || fileName(h.name) != st.file) {
		err = fmt.Errorf("%w: it is that of the name %q", errNotOurs, h.name)
	}
	isTorn := errors.Is(err, errNotOurs) && isCutHeader(st.text) && host.isOtherBoot(info.ModTime()) &&
		!bytes.Contains(st.text[:min(len(st.text), headerSize)], []byte(`"`+host.boot+`"`))
	switch {
	case err == nil:
	case isTorn, errors.Is(err, errUnmade):
		// What was not flushed before a power loss may be cut, or old.
		_ = st.folder.Remove(st.file)
		fallthrough
	case errors.Is(err, fs.ErrNotExist):
		opened.Close() // or nothing, if it is nil
		st.text, st.free = nil, nil
		return nil
	default:
		opened.Close()
		if !errors.Is(err, errNotOurs) {
			return st.folder.notApplied("read", st.file, err)
		}
		return corruptErr(st.folder.path(st.file), err.Error(), "look at it, and delete it when nobody holds that lock")
	}
	st.former = entries
	if !host.isThisBoot(h.bootMark, info.ModTime()) {
		entries = slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.Kept || !st.isAlive(e.Data.session) })
	}
	st.opened, st.header = opened, h
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
				st.end(e.Owner, 0)
				again, found = true, true
			}
		}
	}
	return found
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
	data := entryData{session: st.own.id, detached: req.Detached, public: public[1:]}
	c, err := st.lock.readCounter()
	if err != nil {
		return res, err
	}
	tokens := lockqueue.Counter{Last: c.last, Clock: max(0, st.folder.store.host.wall().UnixMicro())}
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
func (st *state) write() error {
	if st.queue.Len() == 0 {
		if st.opened == nil {
			return nil
		}
		_ = st.opened.Truncate(0) // An empty file is as none, if it cannot be deleted.
		st.opened.Close()         // Windows does not delete it before.
		return wrapErr("delete", st.folder.path(st.file), st.folder.Remove(st.file))
	}
	var err error
	var own room
	live := st.queue.Entries()
	for _, e := range st.former {
		switch {
		case e.Token == live[0].Token && len(live) > 1:
			live = live[1:]
		case e.Token == live[0].Token:
		case e.Owner == st.who.hash:
			own = e.Data.room
		case err == nil:
			err = st.put(e.Data.room.at, fill(nil, e.Data.room.size))
		}
	}
	host := &st.folder.store.host
	mark := host.bootMark()
	if err == nil && st.opened != nil && st.who.hash != "" && mark.apart(st.header.bootMark) > time.Second {
		st.header.bootMark = mark // The file is of an earlier boot, or a step of the clock has come.
		err = st.put(0, st.header.encode())
	}
	if i := st.index(); err == nil && i >= 0 {
		err = st.writeEntry(st.queue.Entries()[i])
	} else if err == nil && own.size > 0 {
		err = st.put(own.at, fill(nil, own.size))
	}
	return err
}

// writeEntry writes the line of an entry, and makes the file if it is missing.
func (st *state) writeEntry(e *entry) (err error) {
	line, place := encodeEntry(e), e.Data.room
	if place.size > 0 && len(line) >= place.size {
		return corruptErr(st.folder.path(st.file), errNotOurs.Error(), "delete it when nobody holds that lock")
	}
	if place.size > 0 {
		return st.put(place.at, fill(line, place.size))
	}
	size := (len(line)/roomStep + 1) * roomStep
	if size > pageSize {
		return fmt.Errorf("%w: the metadata are too long", driver.ErrInvalid)
	}
	for _, place := range st.free {
		if place.size >= size {
			return st.put(place.at, fill(line, place.size))
		}
	}
	at, text := len(st.text), []byte(nil)
	if at == 0 {
		if st.opened, err = st.folder.create(st.file); err != nil {
			return st.folder.notApplied("write", st.file, err)
		}
		text = st.header.encode()
	}
	if at > mostRead/2 {
		return driver.NotApplied(fmt.Errorf("there are too many holds and places of %q: %d are all that fit into %s",
			st.header.name, st.queue.Len()-1, shownPath(st.folder.path(st.file))))
	}
	if left := pageSize - (at+len(text))%pageSize; left < size {
		text = append(text, fill(nil, left)...)
	}
	err = st.put(at, append(text, fill(line, size)...))
	if err != nil && at == 0 {
		_ = st.folder.Remove(st.file)
	}
	return err
}

// put writes a text into the file, unless it is there.
func (st *state) put(at int, text []byte) error {
	former := st.text[min(at, len(st.text)):min(at+len(text), len(st.text))]
	if bytes.Equal(former, text) {
		return nil
	}
	_, err := st.opened.WriteAt(text, int64(at))
	if err != nil { // A part of it may be there.
		_, _ = st.opened.WriteAt(former, int64(at))
		_ = st.opened.Truncate(int64(len(st.text)))
	}
	return st.folder.notApplied("write", st.file, err)
}

// readAll reads a file whole, if it has a size that a store may have written. What it returns lasts
// until the next request: a waiting process has few pages of memory that are in use.
func (l *kernelLock) readAll(file *os.File, size int64) ([]byte, error) {
	if size > mostRead {
		return nil, errNotOurs
	}
	l.text = slices.Grow(l.text[:0], int(size))[:size]
	_, err := file.ReadAt(l.text, 0)
	if err == io.EOF {
		err = nil
	}
	return l.text, err
}

// tell sends the notices to those whose entries have become holds or were broken. A place gets the
// sessions that are now before it, unless it watches them already. The first also gets them when a
// hold has become a keep, which may end earlier.
func (st *state) tell() {
	send := func(e *entry, token int64, before ...string) {
		notice := fmt.Sprintf(noticeText, e.Owner, token, strings.Join(before, " "))
		switch own := st.own; {
		case e.Kept || e.Owner == st.who.hash:
		case own != nil && own.id == e.Data.session:
			own.take(notice)
		default:
			st.folder.knock(e.Data.session, notice)
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
	entries, former, own := st.queue.Entries(), st.former, st.index()
	isKept := own >= 0 && entries[own].Kept
	for i, e := range entries {
		ended := false // of those right before it
		for len(former) > 0 && former[0].Token < e.Token {
			former, ended = former[1:], true
		}
		former = former[min(1, len(former)):]
		isNewFirst := i == holds && e.Token != st.first
		if isNewFirst && holds > 1 || ended && (isNewFirst || i > holds) || isKept && i == holds {
			before, _ := st.before(i + 1 - holds)
			send(e, newBefore, before...)
		}
	}
}

// before returns the sessions whose death brings a place forward: those of the holds if it is the
// first, and otherwise that of the entry before it. They are nil for what is no place. It also
// returns when one of these entries ends.
func (st *state) before(position int) (ids []string, end time.Duration) {
	if position <= 0 {
		return nil, 0
	}
	ids, end = []string{}, math.MaxInt64
	holds := len(st.queue.Holds())
	first, last := holds+position-2, holds+position-1
	if position == 1 {
		first, last = 0, min(holds, maxBefore)
	}
	for _, e := range st.queue.Entries()[first:last] {
		end = min(end, e.Until)
		isDetached := e.Data.detached && position == 1
		if id := e.Data.session; !e.Kept && !isDetached && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, end
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
