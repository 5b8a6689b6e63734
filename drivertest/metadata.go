package drivertest

import (
	"fmt"
	"maps"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

var metadataCases = []testCase{
	{
		name:  "unclaimed",
		claim: "A store that does not claim Metadata drops it.",
		needs: lookup,
		lacks: metadata,
		run: func(r *run) {
			r.takeWith("name", map[string]string{"job": "42"})
			if rec, _ := r.first.lookup("name"); len(rec.Metadata) > 0 {
				r.Errorf("metadata that is not claimed is kept: %v", rec.Metadata)
			}
		},
	},
	{
		name:  "round-trip",
		claim: "Metadata is given back as it came with the acquisition, in every language and with every sign.",
		needs: metadata | lookup,
		run: func(r *run) {
			for i, metadata := range []map[string]string{
				{"job": "42"},
				{"": "an empty key", "an empty value": ""},
				{"größe": "naïve ☃ 日本語 👩‍🚀", "e\u0301": "combining"},
				{"a=b;c": `quote " backslash \ comma , brace } percent %`},
				{"line": "one\ntwo\r\n\tthree", "json": `{"a":[1,2]}`, " padded ": "  "},
				{"Case": "upper", "case": "lower"},
			} {
				name := fmt.Sprint(i)
				r.takeWith(name, metadata)
				r.givesBack(name, metadata)
			}
		},
	},
	{
		name:  "largest",
		claim: "Metadata of MaxMetadata bytes in MaxMetadataEntries entries is given back whole.",
		needs: metadata | lookup,
		run: func(r *run) {
			entries := map[string]string{}
			for i := range driver.MaxMetadataEntries {
				key := fmt.Sprintf("key-%02d", i)
				entries[key] = strings.Repeat(`"`, driver.MaxMetadata/driver.MaxMetadataEntries-len(key))
			}
			r.takeWith("entries", entries)
			r.givesBack("entries", entries)
			one := map[string]string{"k": strings.Repeat("v", driver.MaxMetadata-1)}
			r.takeWith("one", one)
			r.givesBack("one", one)
		},
	},
	{
		name:  "of-this-hold",
		claim: "A hold has the metadata of its own acquisition, and nothing of the hold before.",
		needs: metadata | lookup,
		run: func(r *run) {
			r.takeWith("name", map[string]string{"job": "42", "old": "yes"}).end()
			h := r.takeWith("name", map[string]string{"job": "43"})
			r.givesBack("name", map[string]string{"job": "43"})
			h.end()
			r.takeWith("name", nil)
			r.givesBack("name", nil)
		},
	},
	{
		name:  "lasts",
		claim: "Metadata stays with the hold over renewals and refused attempts.",
		needs: metadata | lookup,
		run: func(r *run) {
			metadata := map[string]string{"job": "42"}
			h := r.takeWith("name", metadata)
			h.renew(long)
			req := r.first.request("name", long)
			req.Metadata = map[string]string{"job": "43"}
			r.first.refuse(req)
			r.givesBack("name", metadata)
		},
	},
}

func (r *run) takeWith(name string, metadata map[string]string) *hold {
	r.Helper()
	req := r.first.request(name, long)
	req.Metadata = metadata
	return r.first.take(req)
}

func (r *run) givesBack(name string, want map[string]string) {
	r.Helper()
	if rec, _ := r.other().lookup(name); !maps.Equal(rec.Metadata, want) {
		r.Errorf("the metadata is %q, want %q", rec.Metadata, want)
	}
}
