package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist checks that every test and every drivertest case that the
// documents name as proof is there.
func TestNamedTestsExist(t *testing.T) {
	function, testCase := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`), regexp.MustCompile(`(?m)^\t\{"([a-z-]+)", `)
	themeOf := regexp.MustCompile(`(?ms)^var (\w+)Cases = (.*?)^}`)
	tests, cases := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range function.FindAllStringSubmatch(string(text), -1) {
			tests[match[1]] = true
		}
		if filepath.Dir(path) != filepath.Join("..", "drivertest") {
			return err
		}
		for _, theme := range themeOf.FindAllStringSubmatch(string(text), -1) {
			cases[theme[1]] = true
			for _, match := range testCase.FindAllStringSubmatch(theme[2], -1) {
				cases[theme[1]+"/"+match[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)")
	group := regexp.MustCompile("`drivertest`: ([a-z/-]+(?:, [a-z/-]+)*)")
	n := 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			n++
			if !tests[match[1]] {
				t.Errorf("%s names %s, which is no test", page, match[1])
			}
		}
		for _, match := range group.FindAllStringSubmatch(string(text), -1) {
			for _, name := range strings.Split(match[1], ", ") {
				n++
				if !cases[name] {
					t.Errorf("%s names %s of drivertest, which is no case", page, name)
				}
			}
		}
	}
	if n < 150 {
		t.Errorf("only %d tests were found in the documents", n)
	}
}
