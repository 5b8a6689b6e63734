package filestore

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A file is plain JSON for people and other tools, and the secret of the owner is not in it.
func TestReadable(t *testing.T) {
	s := openTest(t, t.TempDir())
	req := request("invoices/42", time.Hour)
	req.Metadata = map[string]string{"why": "<month & end>"}
	grantedTo(t, s, req)
	refused := waiting(t, s, request(req.Name, time.Hour))
	text, err := os.ReadFile(s.pathOf(req.Name))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Name    string
		Entries []struct{ Holder string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if file.Name != req.Name || len(file.Entries) != 2 || file.Entries[0].Holder != req.Holder || !strings.Contains(string(text), "<month & end>") {
		t.Errorf("the file has %s", text)
	}
	for _, owner := range []string{req.Owner, refused.Owner} {
		if strings.Contains(string(text), `"`+owner+`"`) {
			t.Errorf("the file shows an owner: %s", text)
		}
	}
}

// Whatever the contract allows comes back, also when the file is written anew for another entry.
func TestLongestEntries(t *testing.T) {
	s := openTest(t, t.TempDir())
	for _, fill := range []string{"x", `"`, `\`, "é", "🔒", "\u2028", "<", "{", ","} {
		most := func(size int) string { return strings.Repeat(fill, size/len(fill)) }
		req := request(most(driver.MaxName), driver.MaxTTL)
		req.Holder, req.Limit, req.Metadata = most(driver.MaxName), driver.Shared, map[string]string{}
		for i := range driver.MaxMetadataEntries {
			req.Metadata[string(rune('a'+i))] = most(driver.MaxMetadata/driver.MaxMetadataEntries - 1)
		}
		grantedTo(t, s, req)
		other := request(req.Name, time.Hour)
		other.Limit = driver.Shared
		grantedTo(t, openTest(t, s.dir), other)
		records, err := s.Lookup(t.Context(), req.Name)
		if err != nil || len(records) != 2 {
			t.Fatal(records, err)
		}
		rec := records[0]
		if rec.Name != req.Name || rec.Holder != req.Holder || rec.Limit != driver.Shared || !maps.Equal(rec.Metadata, req.Metadata) ||
			rec.Remaining > driver.MaxTTL || rec.Remaining < driver.MaxTTL-time.Minute || time.Since(rec.Since) > time.Minute {
			t.Errorf("%s comes back as %+v", fill, rec)
		}
	}
}
