package filestore

import (
	"bytes"
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
//	{"holdfast":2,"name":"deploy","last_token":9,"boot":"…","boot_began_ms":9,"entries":[
//	{"token":9,"tokens":1,"limit":1,"until_ns":9,"kept":false,"detached":false,"session":"…","owner_sha256":"…","since":"…","holder":"…"}
//	]}
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.

// fileFormat is the number in the first field of every file. A later format that this version must
// not misread gets another number.
const fileFormat = 2

// A header is the first line of a name's file.
type header struct {
	Format int    `json:"holdfast"`
	Name   string `json:"name"`
	Last   int64  `json:"last_token"` // the last that was made for the name
	bootMark
}

// entryData is what the file has of an entry beside what the rule knows. The Owner of an entry is
// the SHA-256 of the secret, so that who may read the folder cannot release the holds of others.
type entryData struct {
	session  string // gets the notices, and ends the entry when its process dies
	detached bool   // the session does not end it
	public   string // JSON from the field "since" on
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
	headerEnd = `,"entries":[`
	fileEnd   = "]}\n"
)

// encodeFile returns the contents of a name's file.
func encodeFile(h *header, q *queue) []byte {
	contents := make([]byte, 0, 256+512*q.Len())
	contents = append(bytes.TrimSuffix(encodeJSON(h), []byte("}")), headerEnd...)
	separator := "\n"
	for e := range q.All() {
		contents = append(contents, separator...)
		contents = appendEntry(contents, e)
		separator = ",\n"
	}
	return append(append(contents, '\n'), fileEnd...)
}

func appendEntry(line []byte, e *entry) []byte {
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
	return line
}

// decodeFile returns the header of a name's file and the entries, in their order.
func decodeFile(contents []byte) (h header, entries []entry, err error) {
	first, rest, _ := bytes.Cut(contents, []byte(headerEnd+"\n"))
	rest, isWhole := bytes.CutSuffix(rest, []byte(fileEnd))
	err = json.Unmarshal(append(bytes.Clone(first), '}'), &h)
	switch {
	case err == nil && h.Format > fileFormat:
		return h, nil, fmt.Errorf("it has the format %d of another version of this store", h.Format)
	case err != nil || !isWhole || h.Format != fileFormat || h.Name == "" || h.Last < 0 || h.Last > driver.MaxToken:
		return h, nil, errNotOurs
	}
	last := int64(0)
	for line := range bytes.Lines(rest) {
		e, ok := decodeEntry(bytes.TrimRight(line, ",\n"))
		if !ok || e.Token <= last || e.Token > h.Last {
			return h, nil, errNotOurs
		}
		last = e.Token
		entries = append(entries, e)
	}
	return h, entries, nil
}

var errNotOurs = errors.New("it is not what this store has written")

// decodeEntry is the reverse of appendEntry.
func decodeEntry(line []byte) (e entry, ok bool) {
	ok = true
	skip := func(text string) {
		rest, found := bytes.CutPrefix(line, []byte(text))
		line, ok = rest, ok && found
	}
	number := func(key string) (n int64) {
		skip(key)
		for i, c := range line {
			if c < '0' || c > '9' || i > 18 || n < 0 {
				line = line[i:]
				break
			}
			n = 10*n + int64(c-'0')
		}
		return n
	}
	flag := func(key string) (set bool) {
		skip(key)
		if set = bytes.HasPrefix(line, []byte("true")); set {
			skip("true")
		} else {
			skip("false")
		}
		return set
	}
	digits := func(key string, size int) string {
		skip(key)
		if ok = ok && len(line) > size; !ok {
			return ""
		}
		text := string(line[:size])
		line = line[size:]
		return text
	}
	e.Token = number(`{"token":`)
	e.Tokens = int(number(`,"tokens":`))
	e.Limit = int(number(`,"limit":`))
	e.Until = time.Duration(number(`,"until_ns":`))
	e.Kept = flag(`,"kept":`)
	e.Data.detached = flag(`,"detached":`)
	e.Data.session = digits(`,"session":"`, sessionIDLen)
	e.Owner = digits(`","owner_sha256":"`, 64)
	skip(`",`)
	e.Data.public = string(line)
	return e, ok && e.Limit > 0 && e.Tokens > 0 && isHex(e.Data.session) && isHex(e.Owner)
}

// isHex reports whether text has hexadecimal digits only.
func isHex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }

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
