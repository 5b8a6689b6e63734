package docs

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPictures: each picture is well-formed, has a title for those that cannot see
// it, knows both colour schemes, and is shown on a page.
func TestPictures(t *testing.T) {
	pictures, err := filepath.Glob("pictures/*.svg")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("no pictures: %v", err)
	}
	var pages string
	for _, page := range []string{"guide.md", "../README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		pages += string(text)
	}
	for _, picture := range pictures {
		text, err := os.ReadFile(picture)
		if err != nil {
			t.Fatal(err)
		}
		decoder := xml.NewDecoder(strings.NewReader(string(text)))
		for err == nil {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", picture, err)
		}
		for _, want := range []string{"<title>", "prefers-color-scheme: dark"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %s", picture, want)
			}
		}
		if !strings.Contains(pages, filepath.ToSlash(picture)) {
			t.Errorf("%s is on no page", picture)
		}
	}
}
