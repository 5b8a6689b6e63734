package filestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
//	 {"token":9,"tokens":1,"limit":1,"until_ns":                 9,"kept":false,"detached":false,"session":"…","owner_sha256":"…","since":"…","holder":"…"}
//	,{"token":10,…}
//	]}
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.
//
// The file has whole pages, and the end of an entry has the same width whatever it is. So an entry
// that is prolonged, or is made or ends as the last one, changes one page as a rule, and that is
// written in place (see state.write).

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

	line lineRead
}

// A lineRead is an entry as it was read.
type lineRead struct {
	text    string // "" for a new entry
	until   time.Duration
	kept    bool
	session string
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
	headerEnd = ",\"entries\":[\n"
	entryText = `{"token":%d,"tokens":%d,"limit":%d,"until_ns":%18d,"kept":%t,"detached":%t,"session":"%s","owner_sha256":"%s",%s`
	fileEnd   = "]}\n"

	// pageSize is the size of the pages of a file. A write within one is done or not done when the
	// process is killed.
	pageSize = 4096
)

// encodeFile returns the contents of a name's file. They have the former size, unless that is too
// small or twice too large.
func encodeFile(h *header, q *queue, formerSize int) []byte {
	contents := make([]byte, 0, max(formerSize, pageSize))
	contents = append(contents, bytes.TrimSuffix(encodeJSON(h), []byte("}"))...)
	contents = append(contents, headerEnd...)
	separator := byte(' ')
	for _, e := range q.Entries() {
		contents = append(contents, separator)
		if e.Data.line == (lineRead{e.Data.line.text, e.Until, e.Kept, e.Data.session}) {
			contents = append(contents, e.Data.line.text...)
		} else {
			contents = appendEntry(contents, e)
		}
		contents = append(contents, '\n')
		separator = ','
	}
	size, used := formerSize, len(contents)+len(fileEnd)
	if size < used || size > 2*used+2*pageSize || size%pageSize > 0 {
		size = used + used/8 + pageSize - 1
		size -= size % pageSize
	}
	return fmt.Appendf(contents, "%*s", size-len(contents), fileEnd)
}

// appendEntry appends the line of an entry.
func appendEntry(contents []byte, e *entry) []byte {
	return fmt.Appendf(contents, entryText, e.Token, e.Tokens, e.Limit, e.Until, e.Kept,
		e.Data.detached, e.Data.session, e.Owner, e.Data.public)
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
	body := strings.TrimRight(contents[len(first)+len(headerEnd):len(contents)-len(fileEnd)], " \n")
	entries = make([]entry, 0, len(body)/256)
	for separator, last := " ", int64(0); body != ""; separator = "," {
		var line string
		line, body, _ = strings.Cut(body, "\n")
		line, isSeparate := strings.CutPrefix(line, separator)
		e, ok := decodeEntry(line)
		if !isSeparate || !ok || e.Token <= last || e.Token > driver.MaxToken {
			return h, nil, errNotOurs
		}
		last = e.Token
		entries = append(entries, e)
	}
	return h, entries, nil
}

var errNotOurs = errors.New("it is not what this store has written")

// decodeEntry is the reverse of appendEntry.
func decodeEntry(line string) (e entry, ok bool) {
	rest, ok := line, true
	field := func(key string) string {
		value, after, isThere := strings.Cut(rest, ",")
		value, isNext := strings.CutPrefix(value, key)
		rest, ok = after, ok && isThere && isNext
		return value
	}
	number := func(key string, most int64) int64 {
		n, err := strconv.ParseInt(strings.TrimLeft(field(key), " "), 10, 64)
		ok = ok && err == nil && 0 < n && n <= most
		return n
	}
	flag := func(key string) bool {
		isSet, err := strconv.ParseBool(field(key))
		ok = ok && err == nil
		return isSet
	}
	hex := func(key string, size int) string {
		text := field(key)
		ok = ok && len(text) == size+len(`""`)
		return strings.Trim(text, `"`)
	}
	e.Token = number(`{"token":`, driver.MaxToken)
	e.Tokens = int(number(`"tokens":`, driver.MaxTokens))
	e.Limit = int(number(`"limit":`, driver.Shared))
	e.Until = time.Duration(number(`"until_ns":`, math.MaxInt64/2))
	e.Kept = flag(`"kept":`)
	e.Data.detached = flag(`"detached":`)
	e.Data.session = hex(`"session":`, sessionIDLen)
	e.Owner = hex(`"owner_sha256":`, 2*sha256.Size)
	e.Data.public = rest
	e.Data.line = lineRead{line, e.Until, e.Kept, e.Data.session}
	return e, ok
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
