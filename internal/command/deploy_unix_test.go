//go:build unix

package command

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// TestKubernetesExample runs what the containers of examples/deploy/kubernetes.yaml run: a replica
// that migrates, and a sidecar that says that it leads.
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

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "migrate"), []byte("#!/bin/sh\necho $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command("holdfast", args...)
		cmd.Env, cmd.Dir = append(os.Environ(), "HOLDFAST_STORE=file:locks"), dir
		return cmd
	}
	if out, err := start(migrate[1:]...).CombinedOutput(); string(out) != "up\n" {
		t.Errorf("the migrations: %q %v", out, err)
	}

	cmd := start(append(sidecar, "127.0.0.1:0")...)
	messages, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, _ := bufio.NewReader(messages).ReadString('\n') // empty if it has failed
	page := strings.TrimSuffix(regexp.MustCompile(`http://\S+/leader`).FindString(line), "/leader")
	for _, path := range []string{health, "/leader"} {
		storecheck.Eventually(t, path+" answers 200", func() bool {
			answer, err := http.Get(page + path)
			return err == nil && answer.Body.Close() == nil && answer.StatusCode == 200
		})
	}
}
