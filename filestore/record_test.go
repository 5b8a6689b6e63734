package filestore

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// longestRecord is the record of a request at every limit of the contract, in
// the form that takes most room.
func longestRecord(metadata map[string]string) record {
	return record{
		Name:     strings.Repeat(`"`, driver.MaxName),
		State:    stateHeld,
		Holder:   strings.Repeat(`\`, driver.MaxName),
		Token:    driver.MaxToken,
		After:    driver.MaxToken - 1,
		Since:    timeOfDay(time.Date(2026, 12, 31, 23, 59, 59, 123456789, time.UTC)),
		Until:    timeOfDay(time.Date(2027, 12, 31, 23, 59, 59, 123456789, time.UTC)),
		Metadata: metadata,
		Owner:    ownerHash("x"),
		Boot:     "01234567-89ab-cdef-0123-456789abcdef",
		Expires:  1<<63 - 1,
		Session:  strings.Repeat("0", sessionIDLen),
	}
}

func largestMetadata(fill string) map[string]string {
	metadata := map[string]string{}
	for i := range driver.MaxMetadataEntries {
		key := string(rune('a' + i))
		metadata[key] = strings.Repeat(fill, (driver.MaxMetadata/driver.MaxMetadataEntries-1)/len(fill))
	}
	return metadata
}

func TestLongestRecord(t *testing.T) {
	longest := 0
	for _, fill := range []string{"x", `"`, "\n", "\x00", "\x01", "é", "🔒", "\u2028", "\xff", "<", "x\x00"} {
		rec := longestRecord(largestMetadata(fill))
		line, err := rec.encodeLine(0)
		if err != nil {
			t.Errorf("with metadata of %q: %v", fill, err)
			continue
		}
		longest = max(longest, len(line))
		back, err := decodeRecord(line)
		if err != nil {
			t.Errorf("with metadata of %q: %v", fill, err)
		}
		if !maps.Equal(back.metadata(), rec.Metadata) || back.Name != rec.Name || back.Holder != rec.Holder {
			t.Errorf("a record with metadata of %q comes back as %+v", fill, back)
		}
	}
	t.Logf("the longest record has %d bytes of %d", longest, recordLimit)
	if rest := len(mustEncode(t, longestRecord(nil))); rest+plainMetadataLimit > recordLimit {
		t.Errorf("a record without metadata has %d bytes, which leaves no room for %d", rest, plainMetadataLimit)
	}
}

func mustEncode(tb testing.TB, rec record) []byte {
	tb.Helper()
	line, err := rec.encodeLine(0)
	if err != nil {
		tb.Fatal(err)
	}
	return line
}

func TestTooLongForARecord(t *testing.T) {
	s := openTest(t, t.TempDir())
	req := request("name", time.Hour)
	req.Metadata = map[string]string{"key": strings.Repeat("x", recordLimit)}
	_, err := s.Acquire(t.Context(), req)
	wantError(t, err, driver.ErrInvalid, "4096")
	granted(t, s, "name", time.Hour)
}

// TestReadable shows that a record is plain JSON for people and other tools, and
// that the owner's secret is not in it.
func TestReadable(t *testing.T) {
	s := openTest(t, t.TempDir())
	req := request("invoices/42", time.Hour)
	req.Metadata = map[string]string{"why": "<month & end>"}
	if _, err := s.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(s.recordPath(req.Name))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["name"] != req.Name || fields["holder"] != req.Holder || fields["state"] != "held" || !bytes.Contains(data, []byte("<month & end>")) {
		t.Errorf("the record is %s", data)
	}
	if bytes.Contains(data, []byte(`"`+req.Owner+`"`)) {
		t.Errorf("the record shows the owner: %s", data)
	}
}

// writtenRecords are lines that earlier versions have written: their escapes differ from those of
// encodeLine.
var writtenRecords = map[string]record{
	`{"holdfast":1,"name":"n","state":"free","token":7}` + "\n      ": {Name: "n", State: stateFree, Token: 7},
	`{"holdfast":1,"name":"a\"<\u000a é","state":"held","holder":"h\\\u0001` + "\x7f" + `","token":7,"after":6,"since":"2026-12-31T23:59:59.1Z"` +
		`,"until":"2027-12-31T23:59:59Z","metadata":{"why":"<month & end>\u0009"},"owner_sha256":"2d71","boot":"b","expires_ns":9,"session":"00000000000000000000000000000000"}` + "\n": {
		Name: "a\"<\n\u2028é", State: stateHeld, Holder: "h\\\x01\x7f", Token: 7, After: 6, Since: "2026-12-31T23:59:59.1Z", Until: "2027-12-31T23:59:59Z",
		Metadata: map[string]string{"why": "<month & end>\t"}, Owner: "2d71", Boot: "b", Expires: 9, Session: strings.Repeat("0", sessionIDLen),
	},
	`{"holdfast":1,"name":"n","state":"kept","token":7,"metadata_base64":["d2h5","/w=="]}` + "\n": {
		Name: "n", State: stateKept, Token: 7, Packed: [][]byte{[]byte("why"), []byte("\xff")},
	},
}

// TestWrittenRecords: records of earlier versions are read.
func TestWrittenRecords(t *testing.T) {
	for line, want := range writtenRecords {
		want.Format = recordFormat
		rec, err := decodeRecord([]byte(line))
		if err != nil || !reflect.DeepEqual(rec, want) {
			t.Errorf("%s is read as %+v, %v; want %+v", line, rec, err, want)
			continue
		}
		again := mustEncode(t, rec)
		back, err := decodeRecord(again)
		if err != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("%s is written as %s, and read as %+v, %v", line, again, back, err)
		}
	}
}
