package filestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// The file of a name is JSON. Its first line has a header, and each line after it an entry:
//
//	{"holdfast":2,"name":"deploy","boot":"…","boot_began_ms":9,"entries":[
//	 {"token":9,"tokens":1,"limit":1,"until_ns":9,"kept":false,"detached":false,"session":"…","owner_sha256":"…","since":"…","holder":"…"}
//	,{"token":10,…}
//	]}
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.
//
// The file has whole pages. An entry keeps its place in the file. One that ends leaves a line of
// spaces, and so is the room for others. So most changes are within one page, which is written in
// place (see state.write).

// fileFormat is the number in the first field of every file. A later format that this version must
// not misread gets another number.
const fileFormat = 2

// A header is the first line of a name's file.
type header struct {
	Format int    `json:"holdfast"`
	Name   string `json:"name"`
	bootMark
}

// entryData is what the file has of an entry beside what the rule knows. The Owner of an entry is
// the SHA-256 of the secret, so that the right to read the folder is no right to release the holds
// in it.
type entryData struct {
	session  string // gets the notices, and ends the entry when its process dies
	detached bool   // the session does not end it
	public   string // JSON from the field "since" on

	line line // in the file that was read; the zero line if it is not there
}

// A line is where an entry stands in a file.
type line struct{ at, size int }

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
	headerEnd = ",\"entries\":[\n"
	fileEnd   = "]}\n"

	// pageSize is the size of the pages of a file. A write within one is done or not done when the
	// process is killed.
	pageSize = 4096
)

// encodeFile returns the contents of a name's file. The entries that were in its former contents
// keep their places and their lines, apart from the line of an owner. A new file, one without room
// for another entry, and one that is mostly spaces are written anew, with room for an eighth more.
func encodeFile(h *header, q *queue, former, owner string) []byte {
	contents := make([]byte, 0, max(len(former), pageSize))
	contents = append(contents, bytes.TrimSuffix(encodeJSON(h), []byte("}"))...)
	contents = append(contents, headerEnd...)
	used, separator := len(contents), byte(' ')
	for e := range q.All() {
		var line string
		was := e.Data.line
		if former == "" || was.size == 0 || e.Owner == owner {
			line = encodeEntry(e)
		} else {
			line = former[was.at+1 : was.at+was.size]
		}
		if former != "" {
			contents = appendBlank(contents, was.at)
		}
		contents = append(contents, separator)
		contents = append(contents, line...)
		used, separator = used+len(line), ','
	}
	size := len(former)
	if size < len(contents)+len(fileEnd) || size > 2*used+2*pageSize || size%pageSize > 0 {
		if former != "" {
			return encodeFile(h, q, "", owner)
		}
		size = len(contents) + len(contents)/8 + len(fileEnd) + pageSize - 1
		size -= size % pageSize
	}
	contents = appendBlank(contents, size-len(fileEnd))
	return append(contents, fileEnd...)
}

// changedPage returns the only page in which the contents of a file differ from the former ones. It
// reports false if there are more, or the sizes differ.
func changedPage(former string, contents []byte) (at int, page []byte, isOne bool) {
	if len(former) != len(contents) {
		return 0, nil, false
	}
	for i := 0; i < len(former); i += pageSize {
		if now := contents[i : i+pageSize]; string(now) != former[i:i+pageSize] {
			if page != nil {
				return 0, nil, false
			}
			at, page = i, now
		}
	}
	return at, page, true
}

// appendBlank appends a line of spaces up to a place, unless that is behind.
func appendBlank(contents []byte, end int) []byte {
	for len(contents) < end-1 {
		contents = append(contents, ' ')
	}
	if len(contents) < end {
		contents = append(contents, '\n')
	}
	return contents
}

// encodeEntry returns the line of an entry, behind what separates it from the one before.
func encodeEntry(e *entry) string {
	line := make([]byte, 0, 512)
	number := func(key string, n int64) { line = strconv.AppendInt(append(line, key...), n, 10) }
	number(`{"token":`, e.Token)
	number(`,"tokens":`, int64(e.Tokens))
	number(`,"limit":`, int64(e.Limit))
	number(`,"until_ns":`, int64(e.Until))
	line = strconv.AppendBool(append(line, `,"kept":`...), e.Kept)
	line = strconv.AppendBool(append(line, `,"detached":`...), e.Data.detached)
	line = append(append(line, `,"session":"`...), e.Data.session...)
	line = append(append(line, `","owner_sha256":"`...), e.Owner...)
	line = append(append(line, `",`...), e.Data.public...)
	return string(append(line, '\n'))
}

// decodeFile returns the header of a name's file and the entries, in their order.
func decodeFile(contents string) (h header, entries []entry, err error) {
	first, _, isWhole := strings.Cut(contents, headerEnd)
	isWhole = isWhole && strings.HasSuffix(contents, fileEnd)
	err = json.Unmarshal([]byte(first+"}"), &h)
	switch {
	case err == nil && h.Format > fileFormat:
		return h, nil, fmt.Errorf("it has the format %d of another version of this store", h.Format)
	case err != nil || !isWhole || h.Format != fileFormat || h.Name == "":
		return h, nil, errNotOurs
	}
	at, end := len(first)+len(headerEnd), len(contents)-len(fileEnd)
	entries = make([]entry, 0, (end-at)/256)
	last, separator := int64(0), byte(' ')
	for at < end {
		text, _, _ := strings.Cut(contents[at:end], "\n")
		if strings.Count(text, " ") < len(text) {
			blank := max(strings.IndexByte(text, '{')-1, 0)
			e, ok := decodeEntry(text[min(blank+1, len(text)):])
			ok = ok && strings.Count(text[:blank], " ") == blank && text[blank] == separator
			if !ok || e.Token <= last || e.Token > driver.MaxToken {
				return h, nil, errNotOurs
			}
			e.Data.line = line{at + blank, len(text) + 1 - blank}
			last, separator = e.Token, ','
			entries = append(entries, e)
		}
		at += len(text) + 1
	}
	return h, entries, nil
}

var errNotOurs = errors.New("it is not what this store has written")

// decodeEntry is the reverse of encodeEntry.
func decodeEntry(line string) (e entry, ok bool) {
	ok = true
	skip := func(text string) {
		rest, isThere := strings.CutPrefix(line, text)
		line, ok = rest, ok && isThere
	}
	number := func(key string) (n int64) {
		const most = 18 // digits of an int64
		skip(key)
		i := 0
		for ; i < min(len(line), most) && '0' <= line[i] && line[i] <= '9'; i++ {
			n = 10*n + int64(line[i]-'0')
		}
		line, ok = line[i:], ok && i > 0
		return n
	}
	flag := func(key string) bool {
		skip(key)
		isSet := strings.HasPrefix(line, "true")
		skip(strconv.FormatBool(isSet))
		return isSet
	}
	text := func(key string, size int) string {
		skip(key)
		text := line[:min(size, len(line))]
		line = line[len(text):]
		skip(`"`)
		return text
	}
	e.Token = number(`{"token":`)
	e.Tokens = int(number(`,"tokens":`))
	e.Limit = int(number(`,"limit":`))
	e.Until = time.Duration(number(`,"until_ns":`))
	e.Kept = flag(`,"kept":`)
	e.Data.detached = flag(`,"detached":`)
	e.Data.session = text(`,"session":"`, sessionIDLen)
	e.Owner = text(`,"owner_sha256":"`, 2*sha256.Size)
	skip(",")
	e.Data.public = line
	return e, ok && e.Limit > 0 && e.Limit <= driver.Shared && e.Tokens > 0 && e.Tokens <= driver.MaxTokens
}

// newEntryData returns what is kept with the entry of a request.
func newEntryData(req *driver.Request, session string, since time.Time) entryData {
	public := encodeJSON(publicData{Since: since.UTC(), Holder: req.Holder, Metadata: req.Metadata})
	return entryData{session: session, detached: req.Detached, public: string(public[1:])}
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
