package filestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// The file of a name has a header, which is a line of JSON with spaces up to a fixed size, and the
// entries, which are JSON too, with a line for each:
//
//	{"holdfast":4,"boot":"…","boot_began_ms":9,"at":2048,"size":300,"name":"deploy"}
//	[
//	 {"token":9,"tokens":1,"limit":1,"until_ns":9,"kept":false,"detached":false,"session":"…","owner_sha256":"…","since":"…","holder":"…"}
//	,{"token":10,…}
//	]
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.
//
// A change of bytes in one page is written in place, such as that of an end, which has a fixed
// width. Any other change writes the entries where the former ones are not, and then the header,
// which says where the entries are. So a kill leaves the former ones or the new ones: the kernel
// writes what is in one page whole or not at all.

// nameFormat is the number in the first field of a name's file. A later format that this version
// must not misread gets another number.
const nameFormat = 4

// A header is the first line of a name's file.
type header struct {
	name string
	bootMark
	at, size int64 // of the entries, in bytes
}

// entryData is what the file has of an entry beside what the rule knows. The Owner of an entry is
// the SHA-256 of the secret, so that the right to read the folder is no right to release the holds
// in it.
type entryData struct {
	session  string // gets the notices, and ends the entry when its process dies
	detached bool   // the session does not end it
	public   string // JSON from the field "since" on
	line     string // the entry as it was read; "" for a new one
}

type (
	queue = lockqueue.Queue[entryData]
	entry = lockqueue.Entry[entryData]
)

// publicData is what people see of an entry.
type publicData struct {
	Since    time.Time         `json:"since"`
	Holder   string            `json:"holder"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

const (
	// headerSize is the size of a header, which is in one page of the file: the kernel writes a
	// page whole or not at all when the process is killed.
	headerSize = 2048

	headerText = `{"holdfast":%d,"boot":"%s","boot_began_ms":%d,"at":%d,"size":%d,"name":%s}`

	entriesBegin = "[\n"
	entryText    = `{"token":%d,"tokens":%d,"limit":%d,"until_ns":%d,"kept":%t,"detached":%t,"session":"%s","owner_sha256":"%s",%s`
	entriesEnd   = "]\n"

	// mostRead is the size of the most entries that are read.
	mostRead = 16 << 20
)

// encode returns the header as it is written.
func (h *header) encode() []byte {
	line := fmt.Appendf(make([]byte, 0, headerSize), headerText, nameFormat, h.boot, h.began, h.at, h.size, encodeJSON(h.name))
	line = append(line, blank[:headerSize-len(line)]...)
	line[headerSize-1] = '\n'
	return line
}

// encodeEntries returns the entries of a queue as they are written, of which that of an owner may
// have changed since it was read.
func encodeEntries(q *queue, owner string) []byte {
	text := make([]byte, 0, 384*q.Len())
	text = append(text, entriesBegin...)
	separator := byte(' ')
	for _, e := range q.Entries() {
		text = append(text, separator)
		if e.Data.line != "" && e.Owner != owner {
			text = append(text, e.Data.line...)
		} else {
			text = fmt.Appendf(text, entryText, e.Token, e.Tokens, e.Limit, e.Until, e.Kept,
				e.Data.detached, e.Data.session, e.Owner, e.Data.public)
		}
		text = append(text, '\n')
		separator = ','
	}
	return append(text, entriesEnd...)
}

// readFile reads a name's file: its header, and its entries as they are written, and in their order.
// With errNotOurs, text is what is in the place of the header.
func readFile(file *os.File) (h header, text string, entries []entry, err error) {
	line := make([]byte, headerSize)
	n, err := file.ReadAt(line, 0)
	if err != nil && err != io.EOF {
		return h, "", nil, err
	}
	text = string(line[:n])
	if strings.Trim(text, "\x00") == "" {
		return h, "", nil, errUnmade
	}
	first, _, isLine := strings.Cut(text, "\n")
	f := fields{rest: first, ok: isLine && n == headerSize}
	if format := f.number(`{"holdfast":`, 0, math.MaxInt64); f.ok && format != nameFormat {
		return h, text, nil, fmt.Errorf("%w: it has the format %d of another version", errNotOurs, format)
	}
	h.bootMark = f.bootMark()
	h.at = f.number(`"at":`, headerSize, 4*mostRead)
	h.size = f.number(`"size":`, 0, mostRead)
	err = json.Unmarshal([]byte("{"+f.rest), &struct {
		Name *string `json:"name"`
	}{&h.name})
	if err != nil || !f.ok || h.name == "" {
		return h, text, nil, errNotOurs
	}
	body := make([]byte, h.size)
	if _, err := file.ReadAt(body, h.at); err != nil && err != io.EOF {
		return h, "", nil, err
	}
	all := string(body)
	rest, begins := strings.CutPrefix(all, entriesBegin)
	rest, ends := strings.CutSuffix(rest, entriesEnd)
	if !begins || !ends {
		return h, text, nil, errNotOurs
	}
	entries = make([]entry, 0, len(rest)/256)
	for separator, last := " ", int64(0); rest != ""; separator = "," {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		line, isSeparate := strings.CutPrefix(line, separator)
		e, ok := decodeEntry(line)
		if !isSeparate || !ok || e.Token <= last || e.Token > driver.MaxToken {
			return h, text, nil, errNotOurs
		}
		last = e.Token
		entries = append(entries, e)
	}
	return h, all, entries, nil
}

var (
	errUnmade  = errors.New("its maker was killed")
	errNotOurs = errors.New("it is not what this store has written")
)

// decodeEntry is the reverse of entryText.
func decodeEntry(line string) (e entry, ok bool) {
	f := fields{rest: line, ok: true}
	e.Token = f.number(`{"token":`, 1, driver.MaxToken)
	e.Tokens = int(f.number(`"tokens":`, 1, driver.MaxTokens))
	e.Limit = int(f.number(`"limit":`, 1, driver.Shared))
	e.Until = time.Duration(f.number(`"until_ns":`, 1, math.MaxInt64/2))
	e.Kept = f.flag(`"kept":`)
	e.Data.detached = f.flag(`"detached":`)
	e.Data.session = f.text(`"session":`)
	e.Owner = f.text(`"owner_sha256":`)
	e.Data.public = f.rest
	e.Data.line = line
	return e, f.ok && len(e.Data.session) == sessionIDLen && len(e.Owner) == 2*sha256.Size
}

// fields are those of a line of JSON, which are read in the order in which they are written.
type fields struct {
	rest string
	ok   bool // all were as they are written
}

func (f *fields) next(key string) string {
	value, rest, isThere := strings.Cut(f.rest, ",")
	value, isNext := strings.CutPrefix(value, key)
	f.rest, f.ok = rest, f.ok && isThere && isNext
	return value
}

func (f *fields) number(key string, least, most int64) int64 {
	n, err := strconv.ParseInt(f.next(key), 10, 64)
	f.ok = f.ok && err == nil && least <= n && n <= most
	return n
}

func (f *fields) flag(key string) bool {
	isSet, err := strconv.ParseBool(f.next(key))
	f.ok = f.ok && err == nil
	return isSet
}

func (f *fields) text(key string) string {
	text := f.next(key)
	f.ok = f.ok && len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"'
	return strings.Trim(text, `"`)
}

func (f *fields) bootMark() bootMark {
	return bootMark{boot: f.text(`"boot":`), began: f.number(`"boot_began_ms":`, math.MinInt64, math.MaxInt64)}
}

// decodePublic returns what people see of an entry, as far as it can be read: it is for display
// only.
func (d *entryData) decodePublic() (public publicData) {
	_ = json.Unmarshal([]byte("{"+d.public), &public)
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
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("filestore: numbers and texts have no JSON: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
