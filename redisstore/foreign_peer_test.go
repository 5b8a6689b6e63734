//go:build unix

package redisstore

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// A peer is another process that locks, by a command; testdata/interop/lock.js has it.
type peer struct {
	t    *testing.T
	name string
	in   io.WriteCloser
	out  *bufio.Reader
	cmd  *exec.Cmd
}

// startPeer starts a process that ends with the test: at the end of its input.
func startPeer(t *testing.T, name string, cmd *exec.Cmd) *peer {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	complaints := filepath.Join(t.TempDir(), "stderr")
	file, err := os.Create(complaints)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // The process has its own.
	cmd.Stderr = file
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s does not start: %v", name, err)
	}
	t.Cleanup(func() {
		_ = in.Close() // It is told to end.
		if text, _ := os.ReadFile(complaints); t.Failed() && len(text) > 0 {
			t.Logf("%s: %s", name, text)
			_ = cmd.Process.Kill() // It may wait for what will not come.
		}
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("%s: %v", name, err)
		}
	})
	return &peer{t: t, name: name, in: in, out: bufio.NewReader(out), cmd: cmd}
}

// do sends a command and returns the answer, "" if there is none.
func (p *peer) do(words ...string) string {
	if _, err := io.WriteString(p.in, strings.Join(words, " ")+"\n"); err != nil {
		return ""
	}
	line, _ := p.out.ReadString('\n') // An answer cut short is none.
	return strings.TrimSuffix(line, "\n")
}

// foreigners are the clients of other languages: with TEST_WHOLE also those of npm.
var foreigners = []string{"redis-py"}

func init() {
	if os.Getenv("TEST_WHOLE") != "" {
		foreigners = append(foreigners, "redlock4", "redlock5", "redis-semaphore")
	}
}

func startForeigner(t *testing.T, name string, server *servers.Redis) *peer {
	t.Helper()
	host, port, _ := strings.Cut(server.Addr, ":")
	if name == "redis-py" {
		return startPeer(t, name, exec.Command(python(t), "testdata/interop/lock.py", host, port))
	}
	if _, err := os.Stat("testdata/interop/node_modules"); err != nil {
		t.Fatalf("the packages of npm are not installed: run \"scripts/needs all\": %v", err)
	}
	return startPeer(t, name, exec.Command("node", "testdata/interop/lock.js", name, host, port))
}

// python returns an interpreter that has redis-py.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import redis").Run() == nil {
			return name
		}
	}
	t.Fatal("there is no python3 with redis-py, and this test needs it: run scripts/needs")
	return ""
}
