package command

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// maxHelpWidth is the usual width of a terminal.
const maxHelpWidth = 80

// TestHelpFits checks that no line of the help of any command wraps on a terminal.
func TestHelpFits(t *testing.T) {
	commands := [][]string{{}, {"help"}}
	for _, cmd := range newRoot(&cli{}, nil).Commands() {
		commands = append(commands, []string{cmd.Name()})
	}
	for _, args := range commands {
		root := newRoot(&cli{}, args)
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append(args, "--help"))
		if err := root.Execute(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		command := strings.Join(append([]string{"holdfast"}, args...), " ")
		if !strings.Contains(out.String(), "Usage:\n  "+command) {
			t.Errorf("not the help of %s:\n%s", command, &out)
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if width := utf8.RuneCountInString(line); width > maxHelpWidth {
				t.Errorf("%s: %d columns: %q", command, width, line)
			}
		}
	}
}
