//go:build unix

package recipetest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The test binary is every other process of a test, too: the variables say what
// such a process is to do.
const (
	roleVariable = "RECIPETEST_ROLE"
	argsVariable = "RECIPETEST_ARGS"
)

// A Role is what another process does. What it returns ends the process with a
// message.
type Role func(args []string) error

// Main is what TestMain of a package with roles calls.
func Main(m *testing.M, roles map[string]Role) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](strings.Split(os.Getenv(argsVariable), "\n")); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A Process is another process, in one of the roles.
type Process struct {
	tb    testing.TB
	cmd   *exec.Cmd
	input io.Closer
	ended chan struct{} // closed when all that it said has been heard
}

// Start starts a process that ends with the test. Each line that it prints is
// told to hear, one after the other. Its input stays open until Finish.
func Start(tb testing.TB, hear func(line string), role string, args ...string) *Process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argsVariable+"="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p := &Process{tb: tb, cmd: cmd, input: input, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for in := bufio.NewScanner(output); in.Scan(); {
			hear(in.Text())
		}
		_ = cmd.Wait() // How it ended is in what it said.
	}()
	tb.Cleanup(p.Kill)
	return p
}

// Kill ends the process as a power cut would, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // It may have ended by itself.
	<-p.ended
}

// Finish tells the process to end, by closing its input, and waits for that.
func (p *Process) Finish() {
	_ = p.input.Close() // It may have ended by itself.
	<-p.ended
}

// Pause stops the process as it is, and Resume lets it go on.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.tb.Fatalf("%v: %v", sig, err)
	}
}

// UntilEOF returns when the input of this process, which has a role, is closed:
// by Finish, or because the test process has ended.
func UntilEOF() {
	_, _ = io.Copy(io.Discard, os.Stdin) // Any end is the end.
}
