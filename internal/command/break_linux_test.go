package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

const ctrlC, ctrlD = "\x03", "\x04"

// startBreak runs "holdfast break x" on a terminal up to its question. Its messages go to the
// terminal, and its output to another file.
func startBreak(t *testing.T, store string) (c *console, outcome func() string) {
	t.Helper()
	c = newConsole(t, store, 200, 24, "break", "x")
	file, err := os.CreateTemp(t.TempDir(), "outcome")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	slave := c.cmd.Stdout.(*os.File)
	c.cmd.Stdout = file
	c.start()
	slave.Close()
	return c, func() string {
		data, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

func TestBreakAsks(t *testing.T) {
	for _, test := range []struct {
		keys string
		code int
	}{
		{"y\n", 0}, {"\n", exitNobody}, {"yesterday\n", exitNobody}, {ctrlD, exitNobody}, {ctrlC, -1},
	} {
		t.Run(fmt.Sprintf("%q", test.keys), func(t *testing.T) {
			t.Parallel()
			url, client := newStore(t)
			lock := holdLock(t, client, "x")
			c, outcome := startBreak(t, url)
			c.waitText(fmt.Sprintf(`"x" is held by the-test under token %d, and has been so for `, lock.Token()))
			c.waitText("Break it? [y/N]")
			c.typeKeys(test.keys)
			if code := c.exitCode(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			_, err := client.Lookup(context.Background(), "x")
			if broken := errors.Is(err, holdfast.ErrNotHeld); broken != (test.code == 0) {
				t.Errorf("after %q: %v", test.keys, err)
			}
			want := ""
			if test.code == 0 {
				want = fmt.Sprintf(`broken: "x", which was held by the-test under token %d, and had been so for `, lock.Token())
			}
			if got := outcome(); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("standard output has %q", got)
			}
		})
	}
}

// Where nobody sees the question it is not asked.
func TestBreakWithoutTerminal(t *testing.T) {
	url, client := newStore(t)
	holdLock(t, client, "x")
	c := newConsole(t, url, 80, 24, "break", "x")
	null, err := os.Create(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	slave := c.cmd.Stderr.(*os.File)
	c.cmd.Stdout, c.cmd.Stderr = null, null
	c.start()
	slave.Close()
	c.typeKeys("y\n")
	if code := c.exitCode(); code != exitUsage {
		t.Errorf("exit code %d, want %d", code, exitUsage)
	}
	if _, err := client.Lookup(context.Background(), "x"); err != nil {
		t.Error(err)
	}
}
