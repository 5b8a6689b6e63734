package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A state is that of a name: its file, and the rule over its entries.
type state struct {
	folder   *folder
	contents []byte // of the file; nil if it is missing
	header   header
	queue    queue
	now      time.Duration // of the boot clock, since the name was locked

	// lastHold is the token of the last hold in the file. A hold with a greater one is new.
	lastHold int64
	broken   []entry

	living map[string]bool // what is known of sessions
}

// An actor is the owner whose request is made. The zero actor is nobody.
type actor struct {
	name, owner string
	hash        string // what is written of the owner
}

// update does a verb on the state in a file, writes what has changed, and then notifies the owners
// of entries that have become holds, apart from the actor, and of those that were broken. If verb
// returns an error, nothing is written.
func (f *folder) update(ctx context.Context, file, name string, who actor, verb func(*state) error) error {
	lock := lockOf(file)
	unlock, err := f.lock(ctx, lock)
	if err != nil {
		return err
	}
	st, err := f.readState(file, name)
	if err == nil {
		err = verb(st)
	}
	own := f.session.Load()
	if err == nil && own != nil && who.hash != "" {
		own.note(who, st) // before others can read the entry, and send a notice
	}
	if err == nil {
		err = st.write(ctx, file, spareOf(lock))
	}
	unlock()
	if err == nil {
		st.tell(who.hash)
	}
	return err
}

// readState reads a file, which is that of a name, or of any if name is "".
func (f *folder) readState(file, name string) (*state, error) {
	contents, info, err := f.read(file)
	if err != nil {
		return nil, err
	}
	host := &f.store.host
	st := &state{
		folder: f, contents: contents, now: host.uptime(), living: map[string]bool{},
		header: header{Format: fileFormat, Name: name, bootMark: host.bootMark()},
	}
	if contents != nil {
		// What was not flushed before a power loss may be cut, old, or that of another file.
		err := st.decode(file)
		isTorn := errors.Is(err, errNotOurs) && host.isBeforeBoot(info.ModTime())
		if err != nil && !isTorn {
			return nil, corruptErr(f.path(file), err.Error(), "look at it, and delete it when nobody holds that lock")
		}
	}
	if holds := st.queue.Holds(); len(holds) > 0 {
		st.lastHold = holds[len(holds)-1].Token
	}
	return st, nil
}

// decode sets the header and the entries. Those of an earlier boot are over, as are the processes
// that made them.
func (st *state) decode(file string) error {
	h, entries, err := decodeFile(st.contents)
	if err != nil {
		return err
	}
	if st.header.Name != "" && h.Name != st.header.Name || fileName(h.Name) != file {
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
func (st *state) bury() (any bool) {
	for {
		var dead []string
		behind := len(st.queue.Holds())
		for e := range st.queue.All() {
			if !e.Kept && !e.Data.detached && !st.isAlive(e.Data.session) {
				dead = append(dead, e.Owner)
			}
			if behind--; behind < 0 {
				break
			}
		}
		if len(dead) == 0 {
			return any
		}
		for _, owner := range dead {
			st.queue.Release(owner, 0, st.now)
		}
		any = true
	}
}

// acquire makes the entry of a request.
func (st *state) acquire(ctx context.Context, req *driver.Request, data entryData) (res driver.Result, err error) {
	clock, err := st.folder.tokenClock(ctx, 0)
	if err != nil {
		return res, err
	}
	counter := lockqueue.Counter{Last: st.header.Last, Clock: clock.now(st.now)}
	own, _, err := st.queue.Acquire(req, data, st.now, &counter)
	if err == nil && own.State != driver.Held && st.bury() {
		st.queue.Release(req.Owner, 0, st.now)
		own, _, err = st.queue.Acquire(req, data, st.now, &counter)
	}
	if err != nil {
		return res, err
	}
	st.header.Last = counter.Last
	res = driver.Result{Granted: own.State == driver.Held, Waiting: own.State == driver.Waiting, Token: own.Token}
	if !res.Granted {
		res.Held = st.record(st.queue.Holds()[0])
	}
	return res, nil
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

// find reports whether an owner has an entry, and returns its position among the places, from 1, or
// 0 for a hold, and for a place the sessions that bury looks at: those of the holds and the first
// place.
func (st *state) find(owner string) (position int, before []string, found bool) {
	const most = 32 // The death of one of the others is found by whoever looks.
	position = 1 - len(st.queue.Holds())
	for e := range st.queue.All() {
		if e.Owner == owner {
			return max(position, 0), before, true
		}
		if position <= 1 && len(before) < most && !e.Kept {
			before = append(before, e.Data.session)
		}
		position++
	}
	return 0, nil, false
}

// write makes the file that of the state. The file of a free name goes once the clock has passed
// its last token, and becomes the spare one.
func (st *state) write(ctx context.Context, file, spare string) error {
	f := st.folder
	if st.queue.Len() == 0 && st.contents == nil {
		return nil
	}
	clock, err := f.tokenClock(ctx, 0)
	if err != nil {
		return err
	}
	if st.queue.Len() == 0 {
		ahead := func() time.Duration {
			return time.Duration(st.header.Last+1-clock.now(f.store.host.uptime())) * time.Microsecond
		}
		if left := ahead(); left > 0 && left <= driver.MaxTokens*time.Microsecond {
			time.Sleep(left) // A block of tokens was used for less than 64 µs.
		}
		if ahead() <= 0 {
			return notApplied("delete", f.path(file), f.Rename(file, spare))
		}
	}
	contents := encodeFile(&st.header, &st.queue)
	switch {
	case bytes.Equal(contents, st.contents):
		return nil
	case len(contents) > maxFile:
		return driver.NotApplied(fmt.Errorf("the name has %d entries, and there is room for no more", st.queue.Len()))
	}
	// A token that is far ahead of the clock, by some caller's floor, is not covered by the mark.
	// If the mark were raised to it, the tokens of all names would be as high from the next boot
	// on.
	isFarAhead := st.header.Last > clock.now(st.now)+markLead
	if st.header.Last > clock.Mark && !isFarAhead {
		if _, err := f.tokenClock(ctx, st.header.Last); err != nil {
			return err
		}
	}
	return f.write(spare, file, contents, isFarAhead)
}

// tell sends the notices. Those of other Stores go through the files of their sessions.
func (st *state) tell(actor string) {
	send := func(e *entry, token int64) {
		if own := st.folder.session.Load(); own != nil && own.id == e.Data.session {
			own.send(e.Owner, token)
		} else {
			st.folder.knock(e.Data.session, e.Owner, token)
		}
	}
	for _, e := range st.queue.Holds() {
		if e.Token > st.lastHold && e.Owner != actor {
			send(e, e.Token)
		}
	}
	for i := range st.broken {
		if e := &st.broken[i]; !e.Kept {
			send(e, 0)
		}
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
