package servers

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// A server does not outlive the test process, even one that is killed. The test runs itself as a
// process that starts a server and waits.
func TestServerDiesWithTheTest(t *testing.T) {
	if os.Getenv("SERVERS_TEST_CHILD") != "" {
		os.Stdout.WriteString("pid " + strconv.Itoa(StartRedis(t).PID()) + "\n")
		select {}
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithTheTest$", "-test.timeout=2m")
	child.Env = append(os.Environ(), "SERVERS_TEST_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, _ = strconv.Atoi(text)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // It was killed.
	if pid == 0 {
		t.Fatal("the child started no server")
	}
	storecheck.Eventually(t, "end of the server", func() bool { return !alive(pid) })
}
