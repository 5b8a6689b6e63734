package drivertest

import (
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

var namesCases = []testCase{
	{
		name:  "odd",
		claim: "Every name of 1 to MaxName bytes can be locked, and all of them at once.",
		run: func(r *caseRun) {
			for _, name := range oddNames() {
				r.first.acquireFree(name, long)
			}
			for _, name := range oddNames() {
				r.otherStore().expectHeld(name)
			}
		},
	},
	{
		name:     "odd-records",
		claim:    "Lookup and List return odd names and holders byte for byte.",
		requires: lookup | list,
		run: func(r *caseRun) {
			for _, name := range oddNames() {
				req := r.first.newRequest(name, long)
				req.Holder = name
				r.first.acquireGranted(req)
			}
			records := r.first.listRecords("")
			for _, name := range oddNames() {
				rec, found := r.first.lookupRecord(name)
				if !found || rec.Name != name || rec.Holder != name {
					r.Errorf("Lookup of %q gives the name %q and the holder %q, %v", name, rec.Name, rec.Holder, found)
				}
				if listed := records[name]; listed.Name != name || listed.Holder != "" && listed.Holder != name {
					r.Errorf("List gives the name %q the record %+v", name, listed)
				}
			}
		},
	},
	{
		name:  "long",
		claim: "Long names that differ only in their last byte are different names.",
		run: func(r *caseRun) {
			for _, size := range []int{32, 64, 100, 128, 200, 240, driver.MaxName} {
				stem := strings.Repeat("n", size-1)
				r.first.acquireFree(stem+"a", long)
				r.first.acquireFree(stem+"b", long)
			}
		},
	},
}

// oddNames returns names that stores have been known to confuse or to fail on. No two
// are equal.
func oddNames() []string {
	return []string{
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
