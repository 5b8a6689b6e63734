//go:build unix

package docs

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTakeover runs pictures/takeover.sh with the real command, and checks that
// pictures/takeover.svg shows what it printed, line by line.
func TestTakeover(t *testing.T) {
	bin := buildCommand(t)
	script, err := filepath.Abs("pictures/takeover.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", script)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "HOLDFAST_STORE=file:")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// A token is a time in microseconds: the picture counts from 41.
	short := map[string]string{}
	events := regexp.MustCompile(`\b\d{16}\b`).ReplaceAllStringFunc(string(out), func(token string) string {
		if short[token] == "" {
			short[token] = fmt.Sprint(41 + len(short))
		}
		return short[token]
	})
	picture, err := os.ReadFile("pictures/takeover.svg")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(picture)
	for event := range strings.Lines(events) { // as in "A $ holdfast run", "B > …", "A - is stopped"
		text := strings.TrimPrefix(strings.TrimSuffix(event[2:], "\n"), "> ")
		text = html.EscapeString(strings.TrimPrefix(text, "- "))
		_, after, shown := strings.Cut(rest, `x="`+map[byte]string{'A': "24", 'B': "436"}[event[0]]+`"`)
		if _, after, found := strings.Cut(after, ">"+text+"</text>"); shown && found {
			rest = after
			continue
		}
		t.Errorf("the picture does not show, in this place, %s", event)
	}
	if n := strings.Count(events, "\n"); n < 8 || strings.Contains(rest, "<text") {
		t.Errorf("the picture shows more than these %d lines:\n%s", n, events)
	}
}
