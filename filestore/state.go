package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A state is that of a name: its file, and the rule over its entries.
type state struct {
	folder   *folder
	lock     *kernelLock
	file     string
	contents []byte // of the file; nil if it is missing
	header   header
	queue    queue
	now      time.Duration // of the boot clock, since the name was locked

	// Of the file as it was read: the tokens of the last hold and of the first place, or the last
	// entry if none is a place.
	lastHold, firstPlace int64

	broken []entry
	living map[string]bool // what is known of sessions
}

// An actor is the owner whose request is made. The zero actor is nobody.
type actor struct {
	name, owner string
	hash        string // what is written of the owner
}

// update does a verb on the state in a file, which is that of a name, or of any if name is "". It
// writes what has changed, and then notifies the owners of entries that have become holds, apart
// from the actor, and of those that were broken. If verb returns an error, nothing is written.
func (f *folder) update(
	ctx context.Context, file, name string, who actor, verb func(*state) error,
) error {
	lock := &f.locks[lockOf(file)]
	if err := lock.lock(ctx); err != nil {
		return err
	}
	st, err := f.readState(lock, file, name)
	if err == nil {
		err = verb(st)
	}
	own := f.session.Load()
	if err == nil && own != nil && who.hash != "" {
		own.note(who, st) // before others can read the entry, and send a notice
	}
	if err == nil {
		err = st.write()
	}
	lock.unlock()
	if err == nil {
		st.tell(who.hash)
	}
	return err
}

func (f *folder) readState(lock *kernelLock, file, name string) (*state, error) {
	contents, written, err := f.read(file)
	if err != nil {
		return nil, err
	}
	host := &f.store.host
	st := &state{
		folder: f, lock: lock, file: file, contents: contents, now: host.uptime(),
		header: header{Format: fileFormat, Name: name, bootMark: host.bootMark()},
		living: map[string]bool{},
	}
	if contents == nil {
		return st, nil
	}
	// What was not flushed before a power loss may be cut, old, or that of another file.
	err = st.decode()
	if isTorn := errors.Is(err, errNotOurs) && host.isBeforeBoot(written); err != nil && !isTorn {
		return nil, corruptErr(f.path(file), err.Error(),
			"look at it, and delete it when nobody holds that lock")
	}
	if holds := st.queue.Holds(); len(holds) > 0 {
		st.lastHold = holds[len(holds)-1].Token
	}
	for e := range st.inTheWay() {
		st.firstPlace = e.Token
	}
	return st, nil
}

// decode sets the header and the entries. Those of an earlier boot are over, as are the processes
// that made them.
func (st *state) decode() error {
	h, entries, err := decodeFile(st.contents)
	if err != nil {
		return err
	}
	if st.header.Name != "" && h.Name != st.header.Name || fileName(h.Name) != st.file {
		return fmt.Errorf("%w: it is that of the name %q", errNotOurs, h.Name)
	}
	isThisBoot := st.folder.store.host.isThisBoot(h.bootMark)
	if !isThisBoot {
		h.bootMark = st.header.bootMark
	}
	st.header = h
	for i := range entries {
		if e := &entries[i]; isThisBoot || !e.Kept && st.isAlive(e.Data.session) {
			st.queue.Append(e)
		}
	}
	return nil
}

// isAlive reports whether the process of a session may be alive.
func (st *state) isAlive(session string) bool {
	alive, known := st.living[session]
	if !known {
		alive = st.folder.isAlive(session)
		st.living[session] = alive
	}
	return alive
}

// bury ends the entries of dead processes that are in the way of others: those among the holds, and
// the first place. It reports whether there were any. The dead farther back stay until they are
// there.
func (st *state) bury() (found bool) {
	for {
		var dead []string
		for e := range st.inTheWay() {
			if !e.Kept && !e.Data.detached && !st.isAlive(e.Data.session) {
				dead = append(dead, e.Owner)
			}
		}
		if len(dead) == 0 {
			return found
		}
		for _, owner := range dead {
			st.queue.Release(owner, 0, st.now)
		}
		found = true
	}
}

// inTheWay yields the holds and the first place.
func (st *state) inTheWay() func(yield func(*entry) bool) {
	return func(yield func(*entry) bool) {
		left := len(st.queue.Holds()) + 1
		for e := range st.queue.All() {
			if left--; left < 0 || !yield(e) {
				return
			}
		}
	}
}

// acquire makes the entry of a request.
func (st *state) acquire(req *driver.Request, data entryData) (res driver.Result, err error) {
	c, err := st.lock.readCounter()
	if err != nil {
		return res, err
	}
	tokens := lockqueue.Counter{
		Last: st.header.Last, Clock: max(c.Last+1, st.folder.store.host.wall().UnixMicro()),
	}
	own, _, err := st.queue.Acquire(req, data, st.now, &tokens)
	if err == nil && own.State != driver.Held && st.bury() {
		st.queue.Release(req.Owner, 0, st.now)
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
	// A token ahead of the clock, by some caller's floor, concerns this name alone: its file stays.
	// One that is far ahead is not covered by the mark, and so is flushed.
	st.header.Last, st.header.IsFarAhead = tokens.Last, tokens.Last > tokens.Clock+markLead
	if tokens.Last < tokens.Clock+2*driver.MaxTokens {
		c.Last = tokens.Last
	}
	covered := tokens.Last
	if st.header.IsFarAhead {
		covered = c.Last
	}
	return res, st.lock.writeCounter(c, covered)
}

// renew prolongs the entry of an owner, whose notices go to a session from now on.
func (st *state) renew(owner string, token int64, ttl time.Duration, session string) driver.Entry {
	own, _ := st.queue.Renew(owner, token, ttl, st.now)
	if own.State == driver.Waiting && st.bury() {
		own, _ = st.queue.Renew(owner, token, ttl, st.now)
	}
	for e := range st.queue.All() {
		if e.Owner == owner && own.State != driver.Lost {
			e.Data.session = session
		}
	}
	return own
}

// release ends the entry of an owner.
func (st *state) release(owner string, keep time.Duration) bool {
	ended, _ := st.queue.Release(owner, keep, st.now)
	if st.queue.Waiting() > 0 {
		st.bury()
	}
	return ended
}

// breakHolds ends the hold or keep that has a token, or all for 0, and returns what it ended.
func (st *state) breakHolds(token int64) (records []driver.Record) {
	st.queue.Settle(st.now)
	st.bury()
	st.broken, _ = st.queue.Break(token, st.now)
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
	st.queue.Settle(st.now)
	st.bury()
	for _, e := range st.queue.Holds() {
		records = append(records, st.record(e))
	}
	return records
}

// write makes the file that of the state. The file of a free name goes, and becomes the spare one,
// unless its last token is far ahead of the clock.
func (st *state) write() error {
	f := st.folder
	if st.queue.Len() == 0 {
		if st.contents == nil {
			return nil
		}
		c, err := st.lock.readCounter()
		if err != nil {
			return err
		}
		last := st.header.Last
		if last > c.Last && last <= f.store.host.wall().UnixMicro() {
			c.Last = last
			err = st.lock.writeCounter(c, last)
		}
		if err == nil && last <= c.Last {
			err = notApplied("delete", f.path(st.file), f.Rename(st.file, st.lock.spare()))
		}
		if err != nil || last <= c.Last {
			return err
		}
	}
	contents := encodeFile(&st.header, &st.queue)
	if bytes.Equal(contents, st.contents) {
		return nil
	}
	return f.write(st.lock.spare(), st.file, contents, st.contents == nil, st.header.IsFarAhead)
}

// tell sends the notices to those whose entries have become holds or were broken. When places have
// come forward, some are told where they are, as a number below zero: the first, with the sessions
// whose death it waits for; and the one at the end of those that are near, and at each distance
// from the front twice as great, which watches, or looks more often, from then on.
func (st *state) tell(actor string) {
	send := func(e *entry, token int64, before ...string) {
		own := st.folder.session.Load()
		switch {
		case e.Kept || e.Owner == actor:
		case own != nil && own.id == e.Data.session:
			own.send(e.Owner, token, before)
		default:
			st.folder.knock(e.Data.session, e.Owner, token, before)
		}
	}
	for _, e := range st.queue.Holds() {
		if e.Token > st.lastHold {
			send(e, e.Token)
		}
	}
	for i := range st.broken {
		send(&st.broken[i], 0)
	}
	places := slices.Collect(st.queue.All())[len(st.queue.Holds()):]
	if len(places) == 0 || places[0].Token == st.firstPlace {
		return
	}
	var before []string
	for _, e := range st.queue.Holds()[:min(maxBefore, len(st.queue.Holds()))] {
		before = append(before, e.Data.session)
	}
	send(places[0], -1, before...)
	for position := near; position <= len(places); position *= 2 {
		send(places[position-1], -int64(position))
	}
}

// record describes a hold or keep, as clients may see it.
func (st *state) record(e *entry) driver.Record {
	public := e.Data.decodePublic()
	rec := driver.Record{
		Name: st.header.Name, Token: e.Token, Since: public.Since, Remaining: e.Until - st.now,
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
