//go:build unix

package command

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
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
)

// TestUI is the page of the command: over several stores, one of which does not answer, with a
// token and breaks. No secret of a URL or of the token is shown, and the page ends with open
// connections.
func TestUI(t *testing.T) {
	acceptSignals()
	url, client := newStore(t)
	held := holdLock(t, client, "orders/42")
	const token = "the-token-of-the-test"
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("holdfast", "ui", "--listen", "127.0.0.1:0", "--token-file", tokenFile, "--allow-break", "--metrics",
		"--store", url, "--store", "redis://ada:sesame@127.0.0.1:1/3", "--store", "redis://ada:sesame@127.0.0.1:1/3",
		"--store", "quorum:?node=redis%3A%2F%2F%3Asesame%40127.0.0.1%3A1&node=redis%3A%2F%2F127.0.0.1%3A2&node=redis%3A%2F%2F127.0.0.1%3A3")
	messages, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewReader(messages)
	line, err := lines.ReadString('\n')
	match := regexp.MustCompile(`^holdfast: the page is at (http://127\.0\.0\.1:\d+/)\n$`).FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("%q %v", line, err)
	}
	base, seen := match[1], line
	fetch := func(method, path, form string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, base+path, strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultTransport.RoundTrip(r) // which follows no redirect
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		seen += string(body)
		return answer.StatusCode, string(body)
	}
	for path, want := range map[string]string{
		"": "page.js", "metrics": `holdfast_store_up{store="redis://127.0.0.1:1/3"} 0`,
		"api/locks": `"name":"orders/42","state":"held","holder":"the-test"`,
	} {
		if status, body := fetch("GET", path, ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, without %q:\n%s", path, status, want, body)
		}
	}
	for _, name := range []string{"redis://127.0.0.1:1/3 (2)", "quorum of redis://127.0.0.1:1, redis://127.0.0.1:2, redis://127.0.0.1:3"} {
		if _, body := fetch("GET", "api/locks", ""); !strings.Contains(body, `"name":"`+name+`"`) {
			t.Errorf("%s is not named:\n%s", name, body)
		}
	}
	if answer, err := http.Get(base + "api/locks"); err != nil || answer.StatusCode != 401 {
		t.Errorf("without the token: %v %v", answer, err)
	}
	status, _ := fetch("POST", "break", fmt.Sprintf("store=0&name=orders%%2F42&token=%d", held.Token()))
	before, _ := lines.ReadString('\n') // without which there is no other line
	line, err = lines.ReadString('\n')
	want := fmt.Sprintf(" name=orders/42 token=%d remote=127.0.0.1:", held.Token())
	if status != 204 || err != nil || !strings.Contains(before, `locks: breaking"`) || !strings.Contains(before, want) || !strings.Contains(line, want) || !strings.HasSuffix(line, "holder=the-test\n") {
		t.Errorf("a break: %d, %v, %q, %q", status, err, before, line)
	}
	seen += before + line

	// An open connection does not keep it from ending.
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var rest bytes.Buffer
	var reader sync.WaitGroup
	reader.Go(func() { _, _ = io.Copy(&rest, lines) })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	killer := time.AfterFunc(testTimeout, func() { _ = cmd.Process.Kill() })
	reader.Wait() // before Wait, which closes the pipe
	_ = cmd.Wait()
	if !killer.Stop() || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it has ended with %v", cmd.ProcessState)
	}
	seen += rest.String()
	for _, secret := range []string{"sesame", token, "ada:"} {
		if strings.Contains(seen, secret) {
			t.Errorf("%q is shown", secret)
		}
	}
}
