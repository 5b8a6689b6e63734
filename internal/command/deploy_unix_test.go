//go:build unix

package command

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// TestKubernetesExample runs what the containers of examples/deploy/kubernetes.yaml run: three
// replicas migrate one after the other, and each has a sidecar, of which one says that it leads.
func TestKubernetesExample(t *testing.T) {
	acceptSignals()
	data, err := os.ReadFile("../../examples/deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	find := func(pattern string) string {
		match := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if match == nil {
			t.Fatalf("the example has no %s", pattern)
		}
		return match[1]
	}
	migrate := strings.Split(find(`command: \[(holdfast, run, .*)\]`), ", ")
	sidecar := strings.Split(find(`args: \[(elect, .*), ":8081"\]`), ", ")
	health := find(`httpGet: \{ path: (/\w+), port: 8081 \}`)
	guide, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, excerpt, _ := strings.Cut(string(guide), "```yaml\n      initContainers:\n")
	excerpt, _, closed := strings.Cut(excerpt, "```")
	if !closed || !strings.Contains(text, excerpt) {
		t.Errorf("the guide has another sidecar:\n%s", excerpt)
	}

	url, _ := newStore(t)
	dir := t.TempDir()
	script := "#!/bin/sh\nmkdir busy && sleep 0.1 && echo $1 >>done && rmdir busy\n"
	if err := os.WriteFile(filepath.Join(dir, "migrate"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command("holdfast", args...)
		cmd.Env, cmd.Dir = append(os.Environ(), "HOLDFAST_STORE="+url), dir
		return cmd
	}
	var pods sync.WaitGroup
	for range 3 {
		pods.Go(func() {
			if out, err := start(migrate[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	pods.Wait()
	if done, err := os.ReadFile(filepath.Join(dir, "done")); string(done) != "up\nup\nup\n" {
		t.Errorf("the migrations: %q %v", done, err)
	}

	var sidecars []*exec.Cmd
	pages := make([]string, 3)
	for i := range pages {
		cmd := start(append(sidecar, "127.0.0.1:0")...)
		messages, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill() }()
		line, _ := bufio.NewReader(messages).ReadString('\n') // empty if it has failed
		pages[i] = strings.TrimSuffix(regexp.MustCompile(`http://\S+/leader`).FindString(line), "/leader")
		if answer, err := http.Get(pages[i] + health); err != nil || answer.StatusCode != 200 {
			t.Fatalf("%q: %v %v", line, answer, err)
		}
		sidecars = append(sidecars, cmd)
	}
	leading := func() (leaders []int, token int64) {
		for i, page := range pages {
			answer, err := http.Get(page + "/leader")
			if err != nil {
				continue // it has ended
			}
			var told struct{ Token int64 }
			err = json.NewDecoder(answer.Body).Decode(&told)
			_ = answer.Body.Close()
			if err == nil && answer.StatusCode == 200 {
				leaders, token = append(leaders, i), told.Token
			}
		}
		return leaders, token
	}
	before := int64(0)
	for range pages {
		var leaders []int
		storecheck.Eventually(t, fmt.Sprint("another leads than under ", before), func() bool {
			var token int64
			leaders, token = leading()
			return len(leaders) == 1 && token > before
		})
		_, before = leading()
		began, cmd := time.Now(), sidecars[leaders[0]]
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if took := time.Since(began); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM || took > testTimeout/2 {
			t.Errorf("the sidecar has ended with %v after %v", cmd.ProcessState, took)
		}
	}
}
