package command

import (
	"regexp"
	"strings"
	"testing"
)

// Every line of a page is a request that there is, or text that cannot be taken
// for one.
func TestManualPages(t *testing.T) {
	request := regexp.MustCompile(`^\.(TH .+ 1 .*|SH [A-Z ]+|TP|PP|nf|fi)$`)
	root := newRoot(nil)
	for _, cmd := range append(documentedCommands(root), root) {
		page := manualPage(cmd)
		for line := range strings.Lines(page) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !request.MatchString(line) {
				t.Errorf("%s: %q", cmd.Name(), line)
			}
		}
		if strings.Count(page, "\n.nf\n") != strings.Count(page, "\n.fi\n") {
			t.Errorf("%s: .nf and .fi do not match", cmd.Name())
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT"} {
			if !strings.Contains(page, "\n.SH "+section+"\n") {
				t.Errorf("%s has no %s", cmd.Name(), section)
			}
		}
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		`.dot`: `\&.dot`, `a\b`: `a\eb`, `--x`: `\-\-x`, `don't`: `don\(aqt`, "": "",
	} {
		if got := escapeRoff(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
