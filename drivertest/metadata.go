package drivertest

import (
	"fmt"
	"maps"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

var metadataCases = []testCase{
	{
		name:     "unclaimed",
		claim:    "A store that does not claim Metadata drops it.",
		requires: lookup,
		without:  metadata,
		run: func(r *caseRun) {
			r.acquireWithMetadata("name", map[string]string{"job": "42"})
			if rec, _ := r.first.lookupRecord("name"); len(rec.Metadata) > 0 {
				r.Errorf("metadata that is not claimed is kept: %v", rec.Metadata)
			}
		},
	},
	{
		name:     "round-trip",
		claim:    "Metadata is returned as it came with the acquisition, in every language and with every character.",
		requires: metadata | lookup,
		run: func(r *caseRun) {
			for i, metadata := range []map[string]string{
				{"job": "42"},
				{"": "an empty key", "an empty value": ""},
				{"größe": "naïve ☃ 日本語 👩‍🚀", "e\u0301": "combining"},
				{"a=b;c": `quote " backslash \ comma , brace } percent %`},
				{"line": "one\ntwo\r\n\tthree", "json": `{"a":[1,2]}`, " padded ": "  "},
				{"Case": "upper", "case": "lower"},
			} {
				name := fmt.Sprint(i)
				r.acquireWithMetadata(name, metadata)
				r.expectMetadata(name, metadata)
			}
		},
	},
	{
		name:     "largest",
		claim:    "Metadata of MaxMetadata bytes in MaxMetadataEntries entries is returned whole.",
		requires: metadata | lookup,
		run: func(r *caseRun) {
			entries := map[string]string{}
			for i := range driver.MaxMetadataEntries {
				key := fmt.Sprintf("key-%02d", i)
				entries[key] = strings.Repeat(`"`, driver.MaxMetadata/driver.MaxMetadataEntries-len(key))
			}
			r.acquireWithMetadata("entries", entries)
			r.expectMetadata("entries", entries)
			one := map[string]string{"k": strings.Repeat("v", driver.MaxMetadata-1)}
			r.acquireWithMetadata("one", one)
			r.expectMetadata("one", one)
		},
	},
	{
		name:     "of-this-hold",
		claim:    "A hold has the metadata of its own acquisition, and nothing of the hold before.",
		requires: metadata | lookup,
		run: func(r *caseRun) {
			r.acquireWithMetadata("name", map[string]string{"job": "42", "old": "yes"}).releaseHeld()
			h := r.acquireWithMetadata("name", map[string]string{"job": "43"})
			r.expectMetadata("name", map[string]string{"job": "43"})
			h.releaseHeld()
			r.acquireWithMetadata("name", nil)
			r.expectMetadata("name", nil)
		},
	},
	{
		name:     "lasts",
		claim:    "Metadata stays with the hold over renewals and refused attempts.",
		requires: metadata | lookup,
		run: func(r *caseRun) {
			metadata := map[string]string{"job": "42"}
			h := r.acquireWithMetadata("name", metadata)
			h.renewFor(long)
			req := r.first.newRequest("name", long)
			req.Metadata = map[string]string{"job": "43"}
			r.first.acquireRefused(req)
			r.expectMetadata("name", metadata)
		},
	},
}

// acquireWithMetadata acquires a free name with metadata.
func (r *caseRun) acquireWithMetadata(name string, metadata map[string]string) *hold {
	r.Helper()
	req := r.first.newRequest(name, long)
	req.Metadata = metadata
	return r.first.acquireGranted(req)
}

// expectMetadata checks the metadata that Lookup returns.
func (r *caseRun) expectMetadata(name string, want map[string]string) {
	r.Helper()
	if rec, _ := r.otherStore().lookupRecord(name); !maps.Equal(rec.Metadata, want) {
		r.Errorf("the metadata is %q, want %q", rec.Metadata, want)
	}
}
