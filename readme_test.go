package holdfast_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that the documentation names exists.
func TestDocumentationNamesTests(t *testing.T) {
	tests, err := exec.Command("git", "grep", "-hoE", "^func (Test|Fuzz)[A-Za-z0-9_]+").Output()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(tests), "func "+name[1]+"\n") {
				t.Errorf("%s names %s, which does not exist", page, name[1])
			}
		}
	}
}

// The Go code of the README is that of Example_readme, so that it compiles.
func TestReadmeCodeIsCompiled(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(readme), "```go\n")
	code, _, found := strings.Cut(code, "```")
	if !found {
		t.Fatal("no Go code in the README")
	}
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " // import _")
		line = strings.ReplaceAll(line, `"file:"`, `"memory:"`)
		if !strings.Contains(string(example), line) {
			t.Errorf("not in Example_readme: %s", line)
		}
	}
}
