package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Everything that the program has is in its reference.
func TestReferenceIsWhole(t *testing.T) {
	data, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, cmd := range documented(newRoot()) {
		_, section, ok := strings.Cut(text, "\n## "+cmd.Name()+"\n")
		if !ok {
			t.Errorf("there is nothing about %q", cmd.Name())
		}
		section, _, _ = strings.Cut(section, "\n## ")
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(section, "--"+f.Name) {
				t.Errorf("%s: there is nothing about --%s", cmd.Name(), f.Name)
			}
		})
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(text, "`--"+f.Name) {
				t.Errorf("there is nothing about --%s", f.Name)
			}
		})
	}
	for _, outcome := range []outcome{done, busy, interrupted, unavailable, notStarted, lost, unconfirmed, abandoned} {
		if !strings.Contains(text, "| `"+string(outcome)+"` |") {
			t.Errorf("there is nothing about the outcome %q", outcome)
		}
	}
}
