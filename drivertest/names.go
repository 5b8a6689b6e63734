package drivertest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// namesCases are about the texts of a request: names, holders, metadata.
var namesCases = []testCase{
	{"odd", 0, "Every name of 1 to MaxName bytes can be locked, all of them at once, and is shown byte for byte, as its holder is.", func(r *caseRun) {
		holds := map[string]*entry{}
		for _, name := range oddNames() {
			req := r.first.request(name, long)
			req.Holder = name
			holds[name] = r.first.grant(req)
		}
		other := r.other()
		listed := map[string][]driver.Record{}
		if r.features.has(list) {
			listed = other.list("")
			r.expectListed(listed, oddNames()...)
		}
		for name, h := range holds {
			other.expectTaken(name)
			if r.features.has(lookup) {
				r.expectShown("Lookup", other.lookup(name), !r.features.has(records), h)
			}
			if r.features.has(list) {
				r.expectShown("List", listed[name], true, h)
			}
		}
	}},
	{"owners", 0, "Every owner that is a text without control characters is accepted, and is told from the others.", func(r *caseRun) {
		owners := []string{"a", "A", " ", "'", `"`, `\`, "%", "*", "a b", "a,b", "a:b", "{}", "é", "🔒", strings.Repeat("o", 64)}
		for _, owner := range owners {
			req := r.first.request("name", long)
			req.Owner = owner
			if !r.guarantees.Queue {
				time.Sleep(short) // The slowest nodes of a quorum get a Release after the reply.
			}
			h := r.first.grant(req)
			for _, other := range owners {
				if other != owner && r.first.releaseAs("name", other, 0) {
					r.Errorf("the owner %q releases the hold of %q", other, owner)
				}
			}
			h.expectHeld()
			h.end()
		}
	}},
	{"metadata", metadata | lookup, "Metadata is shown as it came with the request, up to MaxMetadata bytes in MaxMetadataEntries entries.", func(r *caseRun) {
		entries := map[string]string{}
		for i := range driver.MaxMetadataEntries {
			key := fmt.Sprintf("key-%02d", i)
			entries[key] = strings.Repeat(`"`, driver.MaxMetadata/driver.MaxMetadataEntries-len(key))
		}
		for i, want := range []map[string]string{
			{"job": "42"},
			{"": "an empty key", "an empty value": ""},
			{"größe": "naïve ☃ 日本語 👩‍🚀", "e\u0301": "combining"},
			{"a=b;c": `quote " backslash \ comma , brace } percent %`},
			{"json": `{"a":[1,2]}`, " padded ": "  "},
			{"Case": "upper", "case": "lower"},
			{"k": strings.Repeat("v", driver.MaxMetadata-1)},
			entries,
		} {
			name := fmt.Sprint(i)
			r.first.withMetadata(name, want)
			r.expectMetadata(name, want)
		}
	}},
	{"metadata-of-this-hold", metadata | lookup, "A hold has the metadata of its own request, over renewals and refused attempts, and nothing of the hold before.", func(r *caseRun) {
		r.first.withMetadata("name", map[string]string{"job": "42", "old": "yes"}).end()
		h := r.first.withMetadata("name", map[string]string{"job": "43"})
		h.expectRenewed(driver.Held, long)
		req := r.first.request("name", long)
		req.Metadata = map[string]string{"job": "44"}
		r.first.refuse(req)
		r.expectMetadata("name", map[string]string{"job": "43"})
		h.end()
		r.first.withMetadata("name", nil)
		r.expectMetadata("name", nil)
	}},
}

// expectMetadata checks the metadata that Lookup shows.
func (r *caseRun) expectMetadata(name string, want map[string]string) {
	r.Helper()
	found := r.other().lookup(name)
	if len(found) != 1 || !maps.Equal(found[0].Metadata, want) {
		r.Errorf("Lookup shows %v, want the metadata %q", found, want)
	}
}

// oddNames returns names that stores have been known to confuse or to fail on. No two are equal.
func oddNames() []string {
	stem := strings.Repeat("n", driver.MaxName)
	return []string{
		stem[:31] + "a", stem[:31] + "b", stem[:63] + "a", stem[:63] + "b", stem[:99] + "a", stem[:99] + "b",
		stem[:127] + "a", stem[:127] + "b", stem[:199] + "a", stem[:199] + "b", stem[:254] + "a", stem[:254] + "b",
		"a", "A", "z", "0", "-", "--", "--help", "_", " ", "  ", ".", "..", "...", "../x", "../../etc/passwd", "./x",
		"/", "//", "/x", "x/", "a/b", "a//b", "a/./b", "a/../b", `\`, `a\b`, `..\x`, `C:\x`, "C:", "c:x",
		"con", "CON", "nul", "nul.txt", "aux", "com1", "lpt1.lock", "x.", "x..", "x ", "x. ", "~", "~root",
		"%", "%%", "%41", "%2F", "%2f", "%00", "_x", "*", "?", "[a]", "[!a]", "[", "]", "{", "}", "{}", "{a}", "{a}b", "a{", "x{a}y{b}",
		":", "a:b", "::", "'", "''", `"`, "`", "$x", "$(x)", "${x}", ";", "a;b", "--;", "' OR '1'='1", "<", ">", "|", "&", "#", "!", "@", "+", "=",
		"a b", "a\u00a0b", "a\u200bb", "a\u2028b", "\ufeff", "\u202eabc", "é", "e\u0301", "\ufb01", "fi", "\u00c5", "A\u030a", "\u212b", "日本語", "🔒", "👩‍🚀", "\U0010ffff",
		"name", "Name", "NAME", "É", "i", "I", "ı", "İ", "ß", "ẞ", "SS",
		"a/", "a/b/", "a/b/c", "a:", "a.", "a.lock", "a ", "a  ", " a",
		"null", "nil", "true", "0x10", "1e9", "name.lock", "name.tmp", ".name", "index", "keys", "lock", "token",
		strings.Repeat("x", driver.MaxName), strings.Repeat("x", driver.MaxName-1),
		strings.Repeat("/", driver.MaxName), strings.Repeat("%", driver.MaxName), strings.Repeat(`\`, driver.MaxName),
		strings.Repeat("X", driver.MaxName), strings.Repeat("é", driver.MaxName/2), strings.Repeat("🔒", driver.MaxName/4),
	}
}
