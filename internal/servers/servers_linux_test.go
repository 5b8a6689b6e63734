package servers

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRedisRestart(t *testing.T) {
	t.Parallel()
	r := StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	r.Do("SET", "k", "v")
	r.Restart()
	if got := r.Do("GET", "k"); got != "v" {
		t.Errorf("after a restart with the data on disk k is %q, want v", got)
	}
	r.RestartEmpty()
	if got := r.Do("GET", "k"); got != "" {
		t.Errorf("after a restart without data k is %q, want it gone", got)
	}
}

func TestRedisPause(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	r.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := sendCommand(r.Addr, "PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a paused server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	r.Resume()
	if err := <-answered; err != nil {
		t.Errorf("a resumed server does not answer: %v", err)
	}
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t)
	if got := c.Masters[0].Do("CLUSTER", "INFO"); !strings.Contains(got, "cluster_slots_ok:16384") {
		t.Errorf("the cluster is not whole: %s", got)
	}
}

func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	set := StartRedisSentinel(t)
	old := set.MasterAddr()
	if old != set.Nodes[0].Addr {
		t.Errorf("the master is %s, want %s", old, set.Nodes[0].Addr)
	}
	set.Nodes[0].Kill()
	set.AwaitFailover(old)
}

// A server does not outlive the test process, even one that is killed. The test
// runs itself as a process that starts a server and waits.
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
	waitUntil(t, "end of the server", func() bool { return !alive(pid) })
}
