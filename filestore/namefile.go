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

	IsFarAhead bool `json:"far_ahead,omitempty"` // so is Last
}

// entryData is what the file has of an entry beside what the rule knows. The Owner of an entry is
// the SHA-256 of the secret, so that the right to read the folder is no right to release the holds
// in it.
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
	contents = append(contents, bytes.TrimSuffix(encodeJSON(h), []byte("}"))...)
	contents = append(contents, headerEnd...)
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
	first, rest, _ := strings.Cut(string(contents), headerEnd+"\n")
	rest, isWhole := strings.CutSuffix(rest, fileEnd)
	err = json.Unmarshal([]byte(first+"}"), &h)
	switch {
	case err == nil && h.Format > fileFormat:
		return h, nil, fmt.Errorf("it has the format %d of another version of this store", h.Format)
	case err != nil || !isWhole || h.Format != fileFormat || h.Name == "" ||
		h.Last < 0 || h.Last > driver.MaxToken:
		return h, nil, errNotOurs
	}
	last := int64(0)
	entries = make([]entry, 0, strings.Count(rest, "\n"))
	for line := range strings.Lines(rest) {
		e, ok := decodeEntry(strings.TrimRight(line, ",\n"))
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
func decodeEntry(line string) (e entry, ok bool) {
	fields := strings.SplitN(line, ",", 9)
	if len(fields) < 9 {
		return e, false
	}
	ok = true
	value := func(i int, before, after string) string {
		text, hasBefore := strings.CutPrefix(fields[i], before)
		text, hasAfter := strings.CutSuffix(text, after)
		ok = ok && hasBefore && hasAfter
		return text
	}
	number := func(i int, before string) int64 {
		n, err := strconv.ParseInt(value(i, before, ""), 10, 64)
		ok = ok && err == nil && n >= 0
		return n
	}
	e.Token = number(0, `{"token":`)
	e.Tokens = int(number(1, `"tokens":`))
	e.Limit = int(number(2, `"limit":`))
	e.Until = time.Duration(number(3, `"until_ns":`))
	e.Kept = value(4, `"kept":`, "") == "true"
	e.Data.detached = value(5, `"detached":`, "") == "true"
	e.Data.session = value(6, `"session":"`, `"`)
	e.Owner = value(7, `"owner_sha256":"`, `"`)
	e.Data.public = fields[8]
	return e, ok && e.Limit > 0 && e.Tokens > 0 &&
		isHex(e.Data.session, sessionIDLen) && isHex(e.Owner, 2*sha256.Size)
}

// isHex reports whether text has so many hexadecimal digits and nothing else.
func isHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
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
