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
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A shard is one of the files that have the locks. A request uses it when it has its turn in this
// Store, under the kernel lock of the file. Each name belongs to one shard. A shard has lines of
// JSON: a header, and one for each hold and place of its names, in any order.
//
//	{"holdfast":2,"boot":"…","boot_began_ms":9,"mark":9,"flushed":9,"last_token":9}
//	{"token":9,"tokens":1,"limit":1,"until_ns":9,"kept":false,"detached":false,"session":"…",…
//	   …"owner_sha256":"…","name":"deploy","since":"…","holder":"…"}
//
// What can change of an entry comes before its name, and has the same length in every line: a
// request, which reads all entries of its name, finds it without a look at the rest, and changes it
// in place. The rest never changes. Between lines there are spaces and ends of lines.
//
// Each line lies in one page, which the kernel writes whole or not at all: a kill leaves the former
// line or the new one. No change needs two lines to be written at once: an entry becomes a hold by
// the end of those before it, and nothing in its own line tells that it is one.
type shard struct {
	folder *folder
	name   string   // of the file
	file   *os.File // nil until it is needed

	// These are of the last request. The next one uses their memory again.
	text    []byte  // the contents, and blanks
	entries []entry // of the name
	size    int     // of the file
}

// A header has what the tokens of all names of a shard are made from. A power loss forgets what was
// not flushed. So a Mark well ahead of the tokens is flushed before a token above the former one is
// granted. In the next boot tokens begin above it.
type header struct {
	Format int `json:"holdfast"`
	bootMark
	Mark    int64 `json:"mark"`
	Flushed int64 `json:"flushed"` // the greatest mark that was surely flushed in this boot
	Last    int64 `json:"last_token"`
}

// lineData is what the store knows of an entry beside what the rule knows. The Owner of an entry is
// the SHA-256 of the secret: a right to read the folder is none to release the holds in it.
type lineData struct {
	session  string // gets the notices, and ends a hold or place when its process dies
	detached bool   // as a hold it outlives the process
	at       int    // where the line begins; 0 if there is none yet
	public   []byte // the line from its name on
}

type (
	queue = lockqueue.Queue[lineData]
	entry = lockqueue.Entry[lineData]
)

// publicData is what people see of an entry.
type publicData struct {
	Name     string            `json:"name"`
	Since    time.Time         `json:"since"`
	Holder   string            `json:"holder"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

const (
	shardCount = 64

	format = 2 // A format that this version would misread gets another number.

	pageSize   = 4096    // Every entry that a Client makes is shorter.
	headerSize = 512     // A disk writes it whole or not at all.
	mostSize   = 8 << 20 // of a shard

	// markLead is how far ahead the mark is, and so the time from one flush to the next.
	markLead = int64(10 * time.Minute / time.Microsecond)
)

// mutable is what a line has before the name, and publicAt the length of that.
const mutable = `{"token":%16d,"tokens":%2d,"limit":%10d,"until_ns":%19d,"kept":%5t,"detached":%5t,"session":"%26s","owner_sha256":"%64s",`

var publicAt = len(fmt.Sprintf(mutable, 0, 0, 0, 0, false, false, "", ""))

var blanks = append(bytes.Repeat([]byte(" "), pageSize-1), '\n')

func shardFile(number int) string { return fmt.Sprintf("locks-%02d", number) }

// lock waits for the kernel lock and takes it. The kernel serves those that wait in order. A file
// that is missing is made with makes, and fs.ErrNotExist otherwise. The permissions of a file that
// is there stay as they are: it may have been moved there.
func (sh *shard) lock(makes bool) (info fs.FileInfo, err error) {
	for tries, isNew := 100, false; ; tries-- {
		if sh.file == nil {
			sh.file, err = sh.folder.open(sh.name, os.O_RDWR|openFlags, 0)
			if isNew = errors.Is(err, fs.ErrNotExist) && makes; isNew {
				sh.file, err = sh.folder.create(sh.name)
			}
		}
		if err == nil {
			err = setLock(sh.file, exclusive)
		}
		if err == nil {
			info, err = sh.file.Stat()
		}
		var failure error
		switch {
		case tries > 0 && (errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission)):
			time.Sleep(time.Millisecond) // Another user has just made it, and it has not got its permissions yet.
		case err != nil:
			failure = notApplied("lock", sh.folder.path(sh.name), err)
		case namesOf(info) > 1:
			failure = sh.folder.corrupt(sh.name, linked)
		case namesOf(info) == 0: // It was deleted, and another may be in its place.
		case !isNew && info.Size() == 0 && info.Mode().Perm() != sh.folder.mode:
			// Its maker may have been killed. It is made anew.
			if err = sh.folder.Remove(sh.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failure = notApplied("remove", sh.folder.path(sh.name), err)
			}
		default:
			return info, nil
		}
		sh.file.Close() // or nothing, if it is nil
		if sh.file = nil; failure != nil {
			return nil, failure
		}
	}
}

// read reads the shard, and the entries of the name. It drops those of other names that are over
// for a minute: by then each of their waiters has looked, or is over, too, and none misses its
// turn. It also drops those of an earlier boot, whose processes are dead.
func (st *state) read(info fs.FileInfo) error {
	sh, h := st.shard, &st.header
	if info.Size() > mostSize {
		return sh.folder.corrupt(sh.name, notOurs)
	}
	sh.size, sh.entries = int(info.Size()), sh.entries[:0]
	sh.text = slices.Grow(sh.text[:0], sh.size+2*pageSize)[:sh.size]
	if _, err := sh.file.ReadAt(sh.text, 0); err != nil && err != io.EOF {
		return notApplied("read", sh.folder.path(sh.name), err)
	}
	if len(bytes.Trim(sh.text, "\x00")) > 0 || sh.size > 0 && info.Mode().Perm() != sh.folder.mode { // else nothing was granted yet
		err := json.Unmarshal(sh.text[:min(sh.size, headerSize)], h)
		switch {
		case err == nil && h.Format > 0 && h.Format != format:
			return sh.folder.corrupt(sh.name, fmt.Sprintf("it has the format %d of another version", h.Format))
		case err != nil || h.Format != format || min(h.Mark, h.Flushed, h.Last) < 0 || max(h.Mark, h.Flushed, h.Last) > driver.MaxToken:
			return sh.folder.corrupt(sh.name, notOurs)
		}
	}
	// In memory it has whole pages, and an empty one at the end.
	sh.text = append(append(sh.text, blanks[sh.size%pageSize:]...), blanks...)
	this, isThisBoot := sh.folder.store.host.compare(h.bootMark, info.ModTime())
	for at, line := headerSize, []byte(nil); at < len(sh.text); at += len(line) {
		page, need := sh.text[at:(at/pageSize+1)*pageSize], publicAt+len(st.adds)
		line = page
		if end := bytes.IndexByte(page, '\n'); end >= 0 {
			line = page[:end+1]
		}
		if line[0] == ' ' || line[0] == '\n' {
			if st.room == 0 && st.adds != nil && need <= len(page) && len(bytes.TrimLeft(page[:need], " \n")) == 0 {
				st.room = at
			}
			continue
		}
		e, session, owner, ok := decodeEntry(line)
		isOwn := bytes.HasPrefix(e.Data.public, st.prefix)
		isOver := ok && !isOwn && e.Until+time.Minute <= st.now
		if !isThisBoot { // In a container with a boot id of its own a process may live.
			isOver = !ok || e.Kept || !st.isAlive(string(session))
		}
		switch {
		case isOver: // before the header is of this boot
			if err := sh.put(at, blanks[pageSize-len(line):]); err != nil {
				return err
			}
		case !ok:
			return sh.folder.corrupt(sh.name, notOurs)
		case isOwn:
			e.Owner, e.Data.session, e.Data.at = string(owner), string(session), at
			sh.entries = append(sh.entries, e)
		}
	}
	if !isThisBoot {
		h.Flushed, h.Last = 0, max(h.Last, h.Mark)
	}
	h.Format, h.bootMark = format, this
	st.former = make([]*entry, len(sh.entries))
	for i := range sh.entries {
		st.former[i] = &sh.entries[i]
	}
	slices.SortFunc(st.former, func(a, b *entry) int { return cmp.Compare(a.Token, b.Token) })
	for i, e := range st.former[min(1, len(st.former)):] {
		if e.Token == st.former[i].Token {
			return sh.folder.corrupt(sh.name, notOurs)
		}
	}
	st.queue.Grain = clockStep
	st.queue.Restore(st.former...)
	for _, e := range st.queue.Holds() {
		st.held = e.Token
	}
	return nil
}

// write writes what a verb has changed. The line of the owner comes last: if something fails, its
// entry is what it was.
func (st *state) write() error {
	sh, h, live, i := st.shard, &st.header, st.queue.Entries(), st.queue.Index(st.hash)
	at, line := 0, []byte(nil) // of the owner
	for _, e := range st.former {
		blank := blanks[pageSize-publicAt-len(e.Data.public):]
		switch {
		case len(live) > 0 && live[0] == e:
			live = live[1:]
		case i < 0 && e.Owner == st.hash:
			at, line = e.Data.at, blank
		default:
			if err := sh.put(e.Data.at, blank); err != nil {
				return errors.New(err.Error()) // not NotApplied: a Break may have ended another
			}
		}
	}
	if i >= 0 {
		e := st.queue.Entries()[i]
		line = fmt.Appendf(nil, mutable, e.Token, e.Tokens, e.Limit, e.Until, e.Kept, e.Data.detached, e.Data.session, e.Owner)
		line = append(line, e.Data.public...)
		if at = e.Data.at; at == 0 {
			at = st.room
		}
		switch {
		case len(line) > pageSize:
			return fmt.Errorf("%w: the metadata are too long", driver.ErrInvalid)
		case at >= mostSize:
			return driver.NotApplied(fmt.Errorf("there are too many holds and places: no more fit into %s", sh.folder.path(sh.name)))
		}
		if h.Last > h.Flushed { // No mark covers its token.
			h.Mark = min(max(h.Last, h.Mark)+markLead, driver.MaxToken)
		}
		for {
			text := encodeJSON(h)
			if err := sh.put(0, append(text, blanks[pageSize-headerSize+len(text):]...)); err != nil {
				return err
			}
			if h.Last <= h.Flushed {
				break
			}
			if err := sh.folder.store.host.flush(sh.file); err != nil {
				return notApplied("flush", sh.folder.path(sh.name), err)
			}
			h.Flushed = h.Mark
		}
	}
	if err := sh.put(at, line); err != nil {
		return err
	}
	if end := (len(bytes.TrimRight(sh.text[:sh.size], " \n")) + pageSize - 1) / pageSize * pageSize; end < sh.size {
		_ = sh.file.Truncate(int64(end)) // Otherwise it is longer than it need be.
	}
	return nil
}

// put writes a line, or the blanks between lines, unless the file has them already.
func (sh *shard) put(at int, line []byte) error {
	end, begin := at+len(line), min(at, sh.size)
	if bytes.Equal(sh.text[at:end], line) {
		return nil
	}
	former := slices.Clone(sh.text[begin:min(end, sh.size)])
	copy(sh.text[at:], line)
	if _, err := sh.file.WriteAt(sh.text[begin:end], int64(begin)); err != nil { // A part of it may be there.
		_, _ = sh.file.WriteAt(former, int64(begin))
		_ = sh.file.Truncate(int64(sh.size))
		return notApplied("write", sh.folder.path(sh.name), err)
	}
	sh.size = max(sh.size, end)
	return nil
}

// decodeEntry reads a line up to the name. The caller, which needs few of the texts, copies them.
func decodeEntry(line []byte) (e entry, session, owner []byte, ok bool) {
	if len(line) <= publicAt || line[len(line)-1] != '\n' {
		return e, nil, nil, false
	}
	ok = true
	next := func(key string, width int) []byte {
		ok = ok && string(line[:len(key)]) == key
		value := line[len(key) : len(key)+width]
		line = line[len(key)+width:]
		return value
	}
	number := func(key string, width int, most int64) (n int64) {
		for _, digit := range bytes.TrimLeft(next(key, width), " ") {
			ok = ok && '0' <= digit && digit <= '9'
			n = n*10 + int64(digit-'0')
		}
		ok = ok && 1 <= n && n <= most
		return n
	}
	e.Token = number(`{"token":`, 16, driver.MaxToken)
	e.Tokens = int(number(`,"tokens":`, 2, driver.MaxTokens))
	e.Limit = int(number(`,"limit":`, 10, driver.Shared))
	e.Until = time.Duration(number(`,"until_ns":`, 19, math.MaxInt64/2))
	e.Kept = string(next(`,"kept":`, 5)) == " true"
	e.Data.detached = string(next(`,"detached":`, 5)) == " true"
	session, owner = next(`,"session":"`, sessionIDLen), next(`","owner_sha256":"`, 2*sha256.Size)
	ok = ok && !bytes.ContainsFunc(session, func(r rune) bool { return r < '0' || r > 'Z' }) // It goes into messages.
	next(`",`, 0)
	e.Data.public = line
	return e, session, owner, ok
}

// decodePublic returns what people see of an entry, as far as it can be read. If a terminal would
// obey a part of it, that is the name alone.
func (d *lineData) decodePublic() (public publicData) {
	_ = json.Unmarshal(slices.Concat([]byte("{"), d.public), &public)
	if strings.ContainsFunc(public.Holder+fmt.Sprint(public.Metadata), unicode.IsControl) {
		return publicData{Name: public.Name}
	}
	return public
}

// encodeJSON returns value on one line. It escapes no "<" and "&", which would take six bytes each.
func encodeJSON(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // Numbers and texts always have JSON.
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
