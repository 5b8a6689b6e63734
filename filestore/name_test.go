package filestore

import (
	"path/filepath"
	"strings"
	"testing"
)

var oddNames = []string{
	"a", "A", "aA", "Aa", "\u00e1", "a\u0301", "🔒", "日本語", ".", "..", "../x", "../../etc/passwd", "/", "/etc/passwd", `\`, `..\x`,
	"a/b", "a%2fb", "a%2Fb", "%", "%%", "con", "CON", "con.x", "nul", "com1", "com1.txt", "lpt9", "comx", "console", ".hidden",
	"hidden.", "hidden ", " ", "~", "a~b", "*", "?", "a:b", "a|b", `"`, "'", "$(rm)", "-rf", "--", "x.json", ".json", "jobs/1", "Jobs/1",
	strings.Repeat("a", 255), strings.Repeat("A", 255), strings.Repeat("a", 254) + "b", strings.Repeat("/", 255), strings.Repeat("..", 100),
	"con" + strings.Repeat(".", 200), "." + strings.Repeat("x", 200),
}

func TestFileNames(t *testing.T) {
	seen := map[string]string{}
	asFile := strings.TrimSuffix(fileName(strings.Repeat("a", 255)), fileSuffix)
	for _, name := range append([]string{asFile}, oddNames...) {
		file := fileName(name)
		checkFileName(t, name, file)
		folded := strings.ToLower(file)
		if other, taken := seen[folded]; taken {
			t.Errorf("%q and %q have the same file %s", name, other, file)
		}
		seen[folded] = name
	}
	for name, want := range map[string]string{
		"invoices": "invoices.json", "jobs/1": "jobs%2f1.json", "con.x": "%63on.x.json", "..": "%2e..json", "A": "%41.json",
	} {
		if got := fileName(name); got != want {
			t.Errorf("the file of %q is %s, want %s", name, got, want)
		}
	}
}

// checkFileName checks that a file name is safe on every system.
func checkFileName(tb testing.TB, name, file string) {
	tb.Helper()
	if len(file) > 143 {
		tb.Errorf("the file of %q has a name of %d bytes", name, len(file))
	}
	if filepath.Base(file) != file || file[0] == '.' || !filepath.IsLocal(file) {
		tb.Errorf("the file %s of %q is hidden or not in the folder", file, name)
	}
	if strings.Trim(file, "abcdefghijklmnopqrstuvwxyz0123456789._-%~") != "" {
		tb.Errorf("the file %s of %q has a sign in it that not every file system takes as it is", file, name)
	}
	base, _, _ := strings.Cut(file, ".")
	if device.MatchString(base) {
		tb.Errorf("the file %s of %q is a device on Windows", file, name)
	}
}
