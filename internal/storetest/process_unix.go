//go:build unix

package storetest

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

// The test binary also runs as every other process of a test. The variables contain the
// role and the arguments of such a process.
const (
	roleVariable = "STORETEST_ROLE"
	argsVariable = "STORETEST_ARGS"
)

// A Role is the program of another process. If it returns an error, the process prints the
// error and exits with 1.
type Role func(args []string) error

// Main is called by TestMain of a package with roles.
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
	done  chan struct{} // closed when all of its output has been read and it has exited
}

// Start starts a process that ends with the test. It calls onLine with each line that the
// process prints, one after the other. The input of the process stays open until Finish.
func Start(tb testing.TB, onLine func(line string), role string, args ...string) *Process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argsVariable+"="+strings.Join(args, "\n"), "GORACE=atexit_sleep_ms=0")
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
	p := &Process{tb: tb, cmd: cmd, input: input, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for in := bufio.NewScanner(output); in.Scan(); {
			onLine(in.Text())
		}
		_ = cmd.Wait() // Its output shows how it ended.
	}()
	tb.Cleanup(p.Kill)
	return p
}

// Kill ends the process as a power cut would, and returns when it has exited.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // It may have exited by itself.
	<-p.done
}

// Finish closes the input of the process, which ends it, and waits for its exit.
func (p *Process) Finish() {
	_ = p.input.Close() // It may have exited by itself.
	<-p.done
}

// Pause stops the process as it is, and Resume lets it go on.
func (p *Process) Pause() { p.sendSignal(syscall.SIGSTOP) }

// Resume ends Pause.
func (p *Process) Resume() { p.sendSignal(syscall.SIGCONT) }

func (p *Process) sendSignal(sig syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.tb.Fatalf("%v: %v", sig, err)
	}
}

// UntilEOF returns when the input of this process, which has a role, is closed: by Finish,
// or because the test process has ended.
func UntilEOF() {
	_, _ = io.Copy(io.Discard, os.Stdin) // An error ends the input, too.
}
