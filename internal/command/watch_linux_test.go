package command

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

const (
	ctrlC = "\x03"
	long  = "a-name/that-is-much-too-long-for-the-terminal/and-must-be-cut/so-that-no-line-wraps/日本語"
)

// hasRows reports whether the screen is a heading for so many locks, the titles, and lines that
// begin so, and nothing else.
func hasRows(heading string, begins ...string) func([]string) bool {
	begins = append([]string{heading, "NAME "}, begins...)
	return func(lines []string) bool {
		if len(lines) != len(begins)+1 || lines[len(begins)] != "" {
			return false
		}
		for i, begin := range begins {
			if !strings.HasPrefix(lines[i], begin) {
				return false
			}
		}
		return true
	}
}

func TestWatchOnTerminal(t *testing.T) {
	url, client := newStore(t)
	c := newConsole(t, url, 80, 24, "watch", "--interval", "20ms")
	c.start()
	c.waitScreen("empty table", hasRows("0 locks in the file store at "))
	a := holdLock(t, client, "a")
	c.waitScreen("lock", hasRows("1 lock in ", "a     the-test  "+fmt.Sprint(a.Token())))
	b := holdLock(t, client, "b")
	c.waitScreen("second lock", hasRows("2 locks in ", "a ", "b "))
	holdLock(t, client, long)
	c.waitScreen("cut name", hasRows("3 locks in ", "a ", "a-name/that-is-much", "b "))

	// Another size.
	c.resize(200, 24)
	c.waitScreen("whole name", hasRows("3 locks in ", "a ", long, "b "))
	c.resize(50, 5)
	c.waitScreen("cut table", hasRows("3 locks in ", "a ", "and 2 more"))
	c.resize(80, 24)
	c.waitScreen("table", hasRows("3 locks in ", "a ", "a-name", "b "))

	// What the keyboard echoes does not stay.
	c.typeKeys("xyz")
	c.waitScreen("table", hasRows("3 locks in ", "a ", "a-name", "b "))

	if err := a.Release(); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(); err != nil {
		t.Fatal(err)
	}
	c.waitScreen("release", hasRows("1 lock in ", "a-name"))
	before := c.attributes()
	c.typeKeys(ctrlC)
	if code := c.exitCode(); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d", code)
	}
	// The last snapshot stays, and the cursor is below it.
	c.waitScreen("last picture", hasRows("1 lock in ", "a-name"))
	if after := c.attributes(); after != before {
		t.Errorf("the terminal was %+v, is %+v", before, after)
	}
}

// A store that does not answer turns the table grey, with the age of what it shows, until it answers
// again. The heading has the number of those that wait.
func TestWatchTurnsGrey(t *testing.T) {
	server := servers.StartRedis(t)
	url := "redis://" + server.Addr
	client, err := holdfast.Open(context.Background(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	holdLock(t, client, "a")
	waiter, err := holdfast.Open(context.Background(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer waiter.Close()
	ctx, cancel := context.WithCancel(context.Background())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = waiter.Acquire(ctx, "a", nil)
	}()
	c := newConsole(t, url, 120, 24, "watch", "--interval", "50ms")
	c.start()
	c.waitText(", 1 waiting, Ctrl-C to end")
	cancel()
	<-waited
	c.waitScreen("table", func(lines []string) bool { return !strings.Contains(lines[0], "waiting") })
	if strings.Contains(c.text(), escapeDim) {
		t.Error("grey while the store answers")
	}
	server.Pause()
	c.waitText(", no answer for ")
	c.waitScreen("grey table", func([]string) bool { return strings.Contains(c.text(), escapeDim+"a  ") })
	server.Resume()
	c.waitScreen("table", func(lines []string) bool { return !strings.Contains(lines[0], "no answer") })
	c.typeKeys(ctrlC)
	if code := c.exitCode(); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d", code)
	}
}

func (c *console) attributes() unix.Termios {
	c.t.Helper()
	attributes, err := unix.IoctlGetTermios(int(c.master.Fd()), unix.TCGETS)
	if err != nil {
		c.t.Fatal(err)
	}
	return *attributes
}

// After a suspend the table goes on below what the shell has written.
func TestWatchResumes(t *testing.T) {
	url, client := newStore(t)
	holdLock(t, client, "a")
	c := newConsole(t, url, 80, 24, "watch", "--interval", "1s") // so that it is not stopped while it draws
	c.start()
	c.waitScreen("table", hasRows("1 lock in ", "a "))
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.typeKeys("what a shell has written\n")
	c.waitText("what a shell has written")
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.waitScreen("second table", func(lines []string) bool {
		text := strings.Join(lines, "\n")
		return strings.Count(text, "1 lock in ") == 2 && strings.Contains(text, "what a shell has written")
	})
	c.typeKeys(ctrlC)
	if code := c.exitCode(); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d", code)
	}
}

// --json, and a terminal that cannot move its cursor, get lines.
func TestWatchLinesOnTerminal(t *testing.T) {
	for name, change := range map[string]func(*console){
		"json": func(c *console) { c.cmd.Args = append(c.cmd.Args, "--json") },
		"dumb": func(c *console) { c.cmd.Env = append(c.cmd.Env, "TERM=dumb") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, client := newStore(t)
			holdLock(t, client, "a")
			c := newConsole(t, url, 400, 24, "watch", "--interval", "20ms")
			change(c)
			c.start()
			c.waitText(`"event":"held","name":"a"`)
			c.typeKeys(ctrlC)
			if code := c.exitCode(); code != 128+int(syscall.SIGINT) {
				t.Errorf("exit code %d", code)
			}
			if strings.Contains(c.text(), "\x1b") {
				t.Errorf("%q", c.text())
			}
		})
	}
}

func TestWatchNoColor(t *testing.T) {
	for value, bold := range map[string]bool{"": true, "1": false} {
		url, client := newStore(t)
		holdLock(t, client, "a")
		c := newConsole(t, url, 80, 24, "watch")
		c.cmd.Env = append(c.cmd.Env, "NO_COLOR="+value)
		c.start()
		c.waitScreen("table", hasRows("1 lock in ", "a "))
		c.typeKeys(ctrlC)
		c.exitCode()
		if got := strings.Contains(c.text(), escapeBold); got != bold {
			t.Errorf("with NO_COLOR=%q, bold: %v", value, got)
		}
	}
}

func TestLsOnTerminal(t *testing.T) {
	url, client := newStore(t)
	holdLock(t, client, "a")
	holdLock(t, client, long)
	for _, columns := range []int{20, 40, 80, 200} {
		c := newConsole(t, url, columns, 24, "ls")
		c.start()
		if code := c.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		// waitScreen checks that no line is too long.
		c.waitScreen("table", func(lines []string) bool {
			return len(lines) == 4 && strings.HasPrefix(lines[0], "NAME") && strings.Contains(lines[2], long) == (columns == 200)
		})
	}
}
