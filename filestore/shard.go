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
// Each line lies in one page, and a request writes the pages that have changed. So a kill leaves
// the former line or the new one: the kernel writes what is in one page whole or not at all. Each
// line is a change of its own: nothing but its end makes an entry a hold. Behind its lines a page
// has spaces, and the end of a line.
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.
type shard struct {
	folder *folder
	name   string   // of the file
	file   *os.File // nil until it is needed

	// The contents, as they are in the file and as they become. A waiting process has few pages of
	// memory that are in use, so the memory stays from request to request.
	former, text []byte
}

// A line is that of a hold or place.
type line struct {
	page int
	text []byte // with its end; nil when it is over
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
	public   []byte // JSON from the field "since" on, and the end of the line
	line     int    // its number, if it was read
}

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
	entryText = `"token":%d,"tokens":%d,"limit":%d,"until_ns":%19d,"kept":%t,"detached":%t,"session":"%s","owner_sha256":"%s",%s`

	// pageSize is the size of what the kernel writes whole or not at all when the process is
	// killed. Every entry that a Client makes is shorter.
	pageSize = 4096

	// headerSize is what the header has of the first page. A disk writes it whole or not at all.
	headerSize = 512

	// mostRead is the size of the greatest shard that is read. Half of it is filled. In one that is
	// small, lines of other names may have ended.
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
	sh, h, host, size := st.shard, &st.header, &st.folder.store.host, int(info.Size())
	if size > mostRead {
		return st.corrupt(errNotOurs)
	}
	sh.former = slices.Grow(sh.former[:0], size)[:size]
	if _, err := sh.file.ReadAt(sh.former, 0); err != nil && err != io.EOF {
		return st.folder.notApplied("read", sh.name, err)
	}
	if text := bytes.Trim(sh.former[:min(size, headerSize)], "\x00"); len(text) > 0 { // Otherwise nothing was granted yet.
		err := json.Unmarshal(text, h)
		switch {
		case err == nil && h.Format > 0 && h.Format != format:
			return st.corrupt(fmt.Errorf("%w: it has the format %d of another version", errNotOurs, h.Format))
		case err != nil || h.Format != format || min(h.Mark, h.Flushed, h.Last) < 0 || max(h.Mark, h.Flushed, h.Last) > driver.MaxToken:
			return st.corrupt(errNotOurs)
		}
	}
	h.Format = format
	mark, isThisBoot, wasOver := host.bootMark(), host.isThisBoot(h.bootMark, info.ModTime()), false
	st.lines = make([]line, 0, size/256)
	st.former = make([]entry, 0, bytes.Count(sh.former, st.prefix))
	for at := headerSize; at < size; at += pageSize - at%pageSize {
		for text := range bytes.Lines(sh.former[at:min(at-at%pageSize+pageSize, size)]) {
			rest, isOwn := bytes.CutPrefix(text, st.prefix)
			e, ok := entry{}, bytes.HasPrefix(text, []byte(nameText[:8])) && text[len(text)-1] == '\n'
			switch mayBeOver := !isThisBoot || !isOwn && size > small; {
			case text[0] == ' ' || text[0] == '\n':
				continue
			case mayBeOver && st.isOver(text, isThisBoot):
				wasOver = true
				continue
			case isOwn && ok:
				e, ok = decodeEntry(rest)
				e.Data.line = len(st.lines)
				st.former = append(st.former, e)
			}
			if !ok {
				return st.corrupt(errNotOurs)
			}
			st.lines = append(st.lines, line{at / pageSize, text})
		}
	}
	if wasOver && st.failure == nil { // before the header is of this boot
		if err := st.save(-1, nil); err != nil {
			return err
		}
		sh.former = slices.Clone(sh.text)
	}
	if !isThisBoot {
		h.Flushed, h.Last = 0, max(h.Last, h.Mark)
	}
	if !isThisBoot || mark.apart(h.bootMark) > time.Second { // A step of the clock has come.
		h.bootMark = mark
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

// isOver reports whether a line can be dropped: one that has ended by its time, as that of a name
// that is never asked for again, or one of an earlier boot, as are the processes that made those.
// In a container with a boot id of its own some may live.
func (st *state) isOver(text []byte, isThisBoot bool) bool {
	e, ok := decodeEntry(text[bytes.Index(text, []byte(`,"token":`))+1:])
	if isThisBoot {
		return ok && e.Until <= st.now
	}
	return !ok || e.Kept || !st.isAlive(e.Data.session)
}

// corrupt returns the error of a shard that somebody else has written.
func (st *state) corrupt(why error) error {
	return corruptErr(st.folder.path(st.shard.name), why.Error(), "look at it, and delete it when nobody holds a lock in it, "+
		"if the clock of this host is right: tokens then go on from the time of day")
}

// names returns the names that have entries in the shard.
func (st *state) names() (names []string, err error) {
	for _, l := range st.lines {
		var e struct{ Name string }
		if err := json.Unmarshal(l.text, &e); err != nil || strings.ContainsFunc(e.Name, unicode.IsControl) {
			return nil, st.corrupt(errNotOurs)
		}
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// write makes the shard that of the state, which a verb has changed.
func (st *state) write() error {
	var text []byte // the line of the actor
	live := st.queue.Entries()
	if i := st.index(); i >= 0 {
		text = encodeEntry(st.prefix, live[i])
		if err := st.keepTokens(); err != nil {
			return err
		}
	}
	own, isChanged := -1, false
	for _, e := range st.former {
		l, isOwn, isLive := &st.lines[e.Data.line], e.Owner == st.who.hash, len(live) > 0 && live[0].Token == e.Token
		if isLive {
			live = live[1:]
		}
		former := l.text
		switch {
		case isOwn && isLive && len(text) <= len(former):
			l.text, text = text, nil
		case isOwn || !isLive:
			l.text = nil
		}
		if isOwn {
			own = l.page
		}
		isChanged = isChanged || !bytes.Equal(l.text, former)
	}
	if text == nil && !isChanged {
		return nil
	}
	return st.save(own, text)
}

// save writes the pages that have changed. A line stays in its page, and a new one comes into the
// first that has room. The page with the line of the actor is written last: if something fails, its
// entry is what it was.
func (st *state) save(own int, added []byte) (err error) {
	sh, pages := st.shard, 0
	text := append(sh.text[:0], fill(encodeJSON(&st.header), headerSize)...)
	endPage := func() {
		pages++
		if added != nil && len(text)+len(added) <= pages*pageSize {
			text, own, added = append(text, added...), pages-1, nil
		}
		text = fill(text, pages*pageSize)
	}
	for _, l := range st.lines {
		for l.text != nil && pages < l.page {
			endPage()
		}
		text = append(text, l.text...)
	}
	if endPage(); added != nil {
		endPage()
	}
	switch sh.text = text; {
	case added != nil:
		return fmt.Errorf("%w: the metadata are too long", driver.ErrInvalid)
	case len(text) > max(mostRead/2, len(sh.former)):
		return driver.NotApplied(fmt.Errorf("there are too many holds and places: no more fit into %s", st.folder.path(sh.name)))
	}
	for page := range pages {
		if page != own && err == nil {
			err = st.put(page*pageSize, pageSize)
		}
	}
	if 0 <= own && own < pages && err == nil {
		err = st.put(own*pageSize, pageSize)
	}
	if err == nil && len(text) < len(sh.former) {
		err = st.folder.notApplied("shorten", sh.name, sh.file.Truncate(int64(len(text))))
	}
	return err
}

// put writes a part of the contents, if it has changed.
func (st *state) put(at, size int) error {
	sh := st.shard
	text, former := sh.text[at:at+size], sh.former[min(at, len(sh.former)):min(at+size, len(sh.former))]
	if bytes.Equal(text, former) {
		return nil
	}
	if _, err := sh.file.WriteAt(text, int64(at)); err != nil { // A part of it may be there.
		_, _ = sh.file.WriteAt(former, int64(at))
		_ = sh.file.Truncate(int64(len(sh.former)))
		return st.folder.notApplied("write", sh.name, err)
	}
	return nil
}

var blanks = strings.Repeat(" ", pageSize)

// fill returns text that spaces and the end of a line make longer.
func fill(text []byte, size int) []byte {
	text = append(text, blanks[:size-len(text)]...)
	text[size-1] = '\n'
	return text
}

// keepTokens flushes the header before a token that no mark covers is granted.
func (st *state) keepTokens() error {
	h, sh := &st.header, st.shard
	if h.Last <= h.Flushed {
		return nil
	}
	h.Mark = min(max(h.Last, h.Mark)+markLead, driver.MaxToken)
	sh.text = append(sh.text[:0], fill(encodeJSON(h), headerSize)...)
	if err := st.put(0, headerSize); err != nil {
		return err
	}
	if err := st.folder.store.host.flush(sh.file); err != nil {
		return st.folder.notApplied("flush", sh.name, err)
	}
	h.Flushed = h.Mark
	return nil
}

func encodeEntry(prefix []byte, e *entry) []byte {
	line := fmt.Appendf(slices.Clone(prefix), entryText, e.Token, e.Tokens, e.Limit, e.Until, e.Kept, e.Data.detached,
		e.Data.session, e.Owner, bytes.TrimRight(e.Data.public, " \n"))
	return append(line, '\n')
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
