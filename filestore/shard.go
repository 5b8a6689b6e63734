package filestore

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A shard is one of the files that have the locks, as this Store uses it: the request that has its
// turn in the Store, under the kernel lock of the file. Each name has one of them.
//
// A shard has lines of JSON: a header, and one for each hold and place of its names, in any order.
//
//	{"holdfast":1,"boot":"…","boot_began_ms":9,"mark":9,"flushed":9,"last_token":9}
//	{"name":"deploy","token":9,"tokens":1,"limit":1,"until_ns":          9,"kept":false,"detached":false,"session":"…","owner_sha256":"…","since":"…","holder":"…"}
//
// A request writes the line of its entry in the room where it is, or that of a new one into a blank
// room, or at the end. The room of an entry that has ended becomes blank. Spaces fill a room up. It
// lies in one page, so a kill leaves the former line or the new one: the kernel writes what is in
// one page whole or not at all. Each line is a change of its own: nothing but its end makes an
// entry a hold.
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.
type shard struct {
	folder *folder
	name   string   // of the file
	file   *os.File // nil until it is needed
	text   []byte   // as it was read: a waiting process has few pages of memory that are in use
}

// A header makes the tokens of all names of a shard.
//
// A power loss forgets what was not flushed. So Mark is well ahead of the tokens, and it is flushed
// before a token above the former mark is granted. In the next boot tokens begin above it.
type header struct {
	Format int `json:"holdfast"`
	bootMark
	Mark    int64 `json:"mark"`
	Flushed int64 `json:"flushed"` // the greatest mark that was surely flushed in this boot
	Last    int64 `json:"last_token"`
}

// lineData is what a line has beside what the rule knows of the entry. The Owner of an entry is the
// SHA-256 of the secret, so that the right to read the folder is no right to release the holds in
// it.
type lineData struct {
	session  string // gets the notices, and ends the entry when its process dies
	detached bool   // the session does not end it
	public   []byte // JSON from the field "since" on, and blanks
	room     room   // zero for a new one
}

// A room is where a line is, or may be written. Its size includes the end of the line.
type room struct{ at, size int }

type (
	queue = lockqueue.Queue[lineData]
	entry = lockqueue.Entry[lineData]
)

// publicData is what people see of an entry.
type publicData struct {
	Since    time.Time         `json:"since"`
	Holder   string            `json:"holder"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

const (
	shardCount = 64

	// format is the number in the first field of a shard. A later format that this version must not
	// misread gets another number.
	format = 1

	nameText  = `{"name":%s,`
	entryText = `%s"token":%d,"tokens":%d,"limit":%d,"until_ns":%19d,"kept":%t,"detached":%t,"session":"%s","owner_sha256":"%s",%s`

	// pageSize is the size of what the kernel writes whole or not at all when the process is
	// killed. A room has a part of it, where it lies at a multiple of its size. That of the header
	// is written whole or not at all in a power loss, too.
	pageSize  = 4096
	leastRoom = 512

	// mostRead is the size of the greatest shard that is read. Half of it is filled. One that is
	// small is left as it is when nothing in it is in use.
	mostRead = 16 << 20
	small    = 64 << 10

	// markLead is how far ahead the mark is, and so the time from one flush to the next.
	markLead = int64(10 * time.Minute / time.Microsecond)
)

var errNotOurs = errors.New("it is not what this store has written")

func shardFile(number int) string { return fmt.Sprintf("locks-%02d", number) }

// lock waits for the kernel lock and takes it. The kernel serves those that wait in order. With
// makes it makes a file that is missing, which otherwise is fs.ErrNotExist.
func (sh *shard) lock(makes bool) (info fs.FileInfo, err error) {
	for {
		if sh.file == nil {
			if sh.file, err = sh.open(makes); err != nil {
				return nil, sh.folder.notApplied("open", sh.name, err)
			}
		}
		if err := setLock(sh.file, exclusive); err != nil {
			return nil, sh.folder.notApplied("lock", sh.name, err)
		}
		info, err = sh.file.Stat()
		switch {
		case err == nil && namesOf(info) == 1:
			return info, nil
		case err == nil && namesOf(info) > 1:
			_ = setLock(sh.file, unlocked)
			return nil, sh.folder.linked(sh.name)
		}
		sh.file.Close() // It was deleted, and another may be in its place.
		sh.file = nil
	}
}

// open opens the file. It never gives other permissions to a file that it finds, which may have
// been moved there. The file that a process of another user has just made gets its permissions a
// moment later. After a kill in between, the next process with the right to open the file makes it
// anew: it is empty, and no process uses it while it is locked.
func (sh *shard) open(makes bool) (*os.File, error) {
	const step, timeout = time.Millisecond, 100 * time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		file, info, err := sh.folder.open(sh.name, os.O_RDWR|openFlags, 0)
		if err == nil && info.Size() == 0 && info.Mode().Perm() != sh.folder.mode && setLock(file, exclusive) == nil {
			if info, err = file.Stat(); err == nil && info.Size() == 0 && namesOf(info) > 0 {
				_ = sh.folder.Remove(sh.name)
			}
			file.Close()
			file, _, err = sh.folder.open(sh.name, os.O_RDWR|openFlags, 0)
		}
		if errors.Is(err, fs.ErrNotExist) && makes {
			file, err = sh.folder.create(sh.name)
		}
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrPermission) || waited >= timeout {
			return file, err
		}
		time.Sleep(step)
	}
}

// read reads the shard, and the entries of the name of the actor.
func (st *state) read(info fs.FileInfo) error {
	sh, host := st.shard, &st.folder.store.host
	size := int(info.Size())
	if size > mostRead {
		return st.corrupt(errNotOurs)
	}
	sh.text = slices.Grow(sh.text[:0], size)[:size]
	if _, err := sh.file.ReadAt(sh.text, 0); err != nil && err != io.EOF {
		return st.folder.notApplied("read", st.shard.name, err)
	}
	h := &st.header
	if text := bytes.Trim(sh.text[:min(size, leastRoom)], "\x00"); len(text) > 0 { // Otherwise nothing was granted yet.
		err := json.Unmarshal(text, h)
		switch {
		case err == nil && h.Format > 0 && h.Format != format:
			return st.corrupt(fmt.Errorf("%w: it has the format %d of another version", errNotOurs, h.Format))
		case err != nil || h.Format != format || min(h.Mark, h.Flushed, h.Last) < 0 || max(h.Mark, h.Flushed, h.Last) > driver.MaxToken:
			return st.corrupt(errNotOurs)
		}
	}
	h.Format = format
	mark, isThisBoot := host.bootMark(), host.isThisBoot(h.bootMark, info.ModTime())
	if !isThisBoot {
		h.Flushed, h.Last = 0, max(h.Last, h.Mark)
		if err := st.void(); err != nil {
			return err
		}
	}
	if !isThisBoot || mark.apart(h.bootMark) > time.Second { // A step of the clock has come.
		h.bootMark = mark
	}
	st.former = make([]entry, 0, bytes.Count(sh.text, st.prefix))
	for at, line := range lines(sh.text) {
		rest, isOwn := bytes.CutPrefix(line, st.prefix)
		e, ok := entry{}, true
		if isOwn {
			e, ok = decodeEntry(rest)
		}
		switch e.Data.room = (room{at, len(line)}); {
		case !ok || len(line) > pageSize || line[len(line)-1] != '\n':
			return st.corrupt(errNotOurs)
		case isOwn:
			st.former = append(st.former, e)
		case line[0] == ' ':
			st.free = append(st.free, e.Data.room)
		case !bytes.HasPrefix(line, []byte(nameText[:8])):
			return st.corrupt(errNotOurs)
		default:
			st.hasOthers = true
		}
	}
	slices.SortFunc(st.former, func(a, b entry) int { return cmp.Compare(a.Token, b.Token) })
	for i := range st.former {
		if i > 0 && st.former[i].Token == st.former[i-1].Token {
			return st.corrupt(errNotOurs)
		}
	}
	st.queue.Restore(st.former)
	if st.queue.Waiting() > 0 {
		st.first = st.former[len(st.queue.Holds())].Token
	}
	return nil
}

// corrupt returns the error of a shard that somebody else has written.
func (st *state) corrupt(why error) error {
	return corruptErr(st.folder.path(st.shard.name), why.Error(), "look at it, and delete it when nobody holds a lock in it, "+
		"if the clock of this host is right: tokens then go on from the time of day")
}

// lines returns the lines below the header of a shard, each with its end, and where they are.
func lines(text []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for at := leastRoom; at < len(text); {
			size := bytes.IndexByte(text[at:], '\n') + 1
			if size == 0 {
				size = len(text) - at
			}
			if !yield(at, text[at:at+size]) {
				return
			}
			at += size
		}
	}
}

// void makes the lines of an earlier boot blank: its entries are over, as are the processes that
// made them. In a container with a boot id of its own some may live.
func (st *state) void() (err error) {
	text, lives := st.shard.text, false
	for _, line := range lines(text) {
		_, rest, _ := bytes.Cut(line, []byte(`,"token":`))
		e, ok := decodeEntry(slices.Concat([]byte(`"token":`), rest))
		if ok && !e.Kept && st.isAlive(e.Data.session) {
			lives = true
		} else {
			fill(line[:0], len(line))
		}
	}
	switch {
	case st.failure != nil || len(text) <= leastRoom:
		return st.failure
	case lives:
		_, err = st.shard.file.WriteAt(text[leastRoom:], leastRoom)
	default:
		err = st.shard.file.Truncate(leastRoom)
		st.shard.text = text[:leastRoom]
	}
	return st.folder.notApplied("write", st.shard.name, err)
}

// names returns the names that have entries in the shard.
func (st *state) names() (names []string, err error) {
	for _, line := range lines(st.shard.text) {
		var e struct{ Name string }
		switch err := json.Unmarshal(line, &e); {
		case line[0] == ' ':
		case err != nil || strings.ContainsFunc(e.Name, unicode.IsControl):
			return nil, st.corrupt(errNotOurs)
		default:
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// write makes the shard that of the state, which a verb has changed. The line of the actor is the
// last to be written, after the header: if something fails, its entry is what it was.
func (st *state) write() (err error) {
	var own room
	live := st.queue.Entries()
	if len(live) == 0 && !st.hasOthers && len(st.shard.text) > small {
		return st.folder.notApplied("shorten", st.shard.name, st.shard.file.Truncate(leastRoom))
	}
	for _, e := range st.former {
		switch {
		case len(live) > 0 && live[0].Token == e.Token:
			live = live[1:]
		case e.Owner == st.who.hash:
			own = e.Data.room
		default:
			err = cmp.Or(err, st.put(nil, e.Data.room))
		}
	}
	var line []byte
	if i := st.index(); i >= 0 && err == nil {
		e := st.queue.Entries()[i]
		line, own = encodeEntry(st.prefix, e), e.Data.room
		if own.size == 0 {
			own, err = st.makeRoom(len(line) + 1)
		}
		if err == nil {
			err = st.putHeader()
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
	r, end := room{size: leastRoom}, len(st.shard.text)
	for at, line := range lines(st.shard.text) {
		name, _, _ := bytes.Cut(line, []byte(`"token":`))
		e, ok := decodeEntry(line[len(name):])
		isOver := ok && e.Until <= st.now && bytes.Count(st.shard.text, name) == 1 // Nobody waits for its end.
		if end > small && isOver && len(line) >= size {
			return room{at, len(line)}, nil
		}
	}
	for r.size < size {
		r.size *= 2
	}
	switch r.at = (end + r.size - 1) / r.size * r.size; {
	case r.size > pageSize:
		return r, fmt.Errorf("%w: the metadata are too long", driver.ErrInvalid)
	case end > mostRead/2:
		return r, driver.NotApplied(fmt.Errorf("there are too many holds and places: no more fit into %s", st.folder.path(st.shard.name)))
	case r.at > end:
		return r, st.put(nil, room{end, r.at - end})
	}
	return r, nil
}

func (st *state) putHeader() error { return st.put(encodeJSON(&st.header), room{0, leastRoom}) }

// put writes a line into a room, unless it is there.
func (st *state) put(line []byte, r room) error {
	text, file := st.shard.text, st.shard.file
	if len(line) >= r.size {
		return st.corrupt(errNotOurs)
	}
	former := text[min(r.at, len(text)):min(r.at+r.size, len(text))]
	line = fill(line, r.size)
	if bytes.Equal(former, line) {
		return nil
	}
	if _, err := file.WriteAt(line, int64(r.at)); err != nil { // A part of it may be there.
		_, _ = file.WriteAt(former, int64(r.at))
		_ = file.Truncate(int64(len(text)))
		return st.folder.notApplied("write", st.shard.name, err)
	}
	if copy(former, line) == 0 {
		st.shard.text = append(text, line...)
	}
	return nil
}

// fill returns a line that fills a room up.
func fill(line []byte, size int) []byte {
	line = append(line, bytes.Repeat([]byte(" "), size-len(line))...)
	line[size-1] = '\n'
	return line
}

// keepTokens flushes the header before a token that no mark covers is granted.
func (st *state) keepTokens() error {
	h := &st.header
	if h.Last <= h.Flushed {
		return nil
	}
	h.Mark = min(max(h.Last, h.Mark)+markLead, driver.MaxToken)
	if err := st.putHeader(); err != nil {
		return err
	}
	if err := st.folder.store.host.flush(st.shard.file); err != nil {
		return st.folder.notApplied("flush", st.shard.name, err)
	}
	h.Flushed = h.Mark
	return nil
}

func encodeEntry(prefix []byte, e *entry) []byte {
	return fmt.Appendf(nil, entryText, prefix, e.Token, e.Tokens, e.Limit, e.Until, e.Kept, e.Data.detached,
		e.Data.session, e.Owner, bytes.TrimRight(e.Data.public, " \n"))
}

// decodeEntry reads a line behind the name, in which all fields must be as they are written.
func decodeEntry(line []byte) (e entry, ok bool) {
	ok = true
	next := func(key string) []byte {
		field, rest, isField := bytes.Cut(line, []byte(","))
		value, isKey := bytes.CutPrefix(field, []byte(key))
		line, ok = rest, ok && isField && isKey
		return bytes.TrimLeft(value, " ")
	}
	number := func(key string, most int64) int64 {
		n, err := strconv.ParseInt(string(next(key)), 10, 64)
		ok = ok && err == nil && 1 <= n && n <= most
		return n
	}
	e.Token = number(`"token":`, driver.MaxToken)
	e.Tokens = int(number(`"tokens":`, driver.MaxTokens))
	e.Limit = int(number(`"limit":`, driver.Shared))
	e.Until = time.Duration(number(`"until_ns":`, math.MaxInt64/2))
	text := func(key string) string { return string(bytes.Trim(next(key), `"`)) }
	e.Kept = text(`"kept":`) == "true"
	e.Data.detached = text(`"detached":`) == "true"
	e.Data.session, e.Owner = text(`"session":`), text(`"owner_sha256":`)
	e.Data.public = line
	return e, ok && len(e.Data.session) == sessionIDLen && len(e.Owner) == 2*sha256.Size
}

// decodePublic returns what people see of an entry, as far as it can be read: it is for display
// only.
func (d *lineData) decodePublic() (public publicData) {
	_ = json.Unmarshal(slices.Concat([]byte("{"), d.public), &public)
	text := public.Holder
	for key, value := range public.Metadata {
		text += key + value
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return publicData{} // Somebody else has written it.
	}
	return public
}

// encodeJSON returns value on one line, in which people can read "<" and "&".
func encodeJSON(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // Numbers and texts always have JSON.
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
