package command

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// A console is a terminal that the test plays, with a holdfast as the leader of its session.
type console struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	ended  chan struct{}

	mu     sync.Mutex
	screen *fakeTerminal
	all    []byte
}

// newConsole prepares a terminal for "holdfast ARGS".
func newConsole(t *testing.T, store string, columns, rows int, args ...string) *console {
	t.Helper()
	acceptSignals()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	c := &console{t: t, master: master, screen: &fakeTerminal{columns: columns, rows: rows}, ended: make(chan struct{})}
	c.resize(columns, rows)
	c.cmd = exec.Command("holdfast", args...)
	c.cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+store, "TERM=xterm", "NO_COLOR=")
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = slave, slave, slave
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return c
}

// start has it run; when the test ends it is killed.
func (c *console) start() {
	c.t.Helper()
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.cmd.Stdin.(*os.File).Close()
	go c.readOutput()
	c.t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
}

// readOutput shows what is written until no process has the terminal open any more.
func (c *console) readOutput() {
	defer close(c.ended)
	data := make([]byte, 4096)
	for {
		n, err := c.master.Read(data)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.all = append(c.all, data[:n]...)
		c.screen.write(data[:n])
		c.mu.Unlock()
	}
}

func (c *console) resize(columns, rows int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.screen.resize(columns, rows)
	if err := pty.Setsize(c.master, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *console) typeKeys(keys string) {
	c.t.Helper()
	if _, err := c.master.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

// waitScreen waits until the text on the screen fulfils a condition.
func (c *console) waitScreen(what string, done func(lines []string) bool) {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		lines, fault := c.screen.lines(), c.screen.fault
		c.mu.Unlock()
		if fault != "" {
			c.t.Fatal(fault)
		}
		if done(lines) {
			return
		}
		if time.Since(began) > testTimeout {
			c.t.Fatalf("no %s on the screen:\n%s", what, strings.Join(lines, "\n"))
		}
	}
}

func (c *console) waitText(text string) {
	c.t.Helper()
	c.waitScreen(text, func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), text) })
}

// exitCode waits for the end, and returns the exit code.
func (c *console) exitCode() int {
	c.t.Helper()
	err := c.cmd.Wait()
	<-c.ended
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// text is all that was written to the terminal.
func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.all)
}
