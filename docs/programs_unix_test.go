//go:build unix

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestReadmePrograms: all code of the README is a whole program. It compiles as it stands, and
// takes its locks in each store that it names.
func TestReadmePrograms(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) != 1 || !strings.HasPrefix(blocks[0], "package main\n") {
		t.Fatalf("%d blocks of Go in the README, want one, a whole program", len(blocks))
	}
	program, _, _ := strings.Cut(blocks[0], "```")
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	executable := strings.TrimSuffix(source, ".go")
	if out, err := exec.Command("go", "build", "-o", executable, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, url := range []string{"redis://" + servers.StartRedis(t).Addr, "file:" + t.TempDir()} {
		cmd := exec.Command(executable)
		cmd.Env = append(os.Environ(), "LOCKS_URL="+url)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "the lock is ours, its token is 1") || !strings.Contains(string(out), "the result is <nil>") {
			t.Errorf("with %s it ends with %v and says:\n%s", url, err, out)
		}
	}
}

// TestReadmeCommands runs the commands of the README as they stand, with stubs for the programs of
// others that they run, and with a server for the one that they name.
func TestReadmeCommands(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, redis := t.TempDir(), "redis://"+servers.StartRedis(t).Addr
	path := buildCommand(t)
	for _, stub := range []string{path + "/rsync", path + "/wget", dir + "/report.sh", dir + "/scheduler", dir + "/nightly.sh"} {
		if err := os.WriteFile(stub, []byte("#!/bin/sh\necho ran under $HOLDFAST_NAME\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ran := map[string]bool{}
	for line := range strings.Lines(string(readme)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "holdfast" && words[0]+words[1] != "gorun" {
			continue
		}
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(line, "redis://db", redis))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "HOLDFAST_STORE=file:"+dir+"/locks")
		want := "ran under " + words[2]
		switch words[1] {
		case "ls":
			want = "there are no locks in file:"
		case "doctor":
			want = "refused to others"
		}
		if words[0] == "go" {
			cmd.Dir, want = "..", "nobody else runs this now"
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s%v: %s", line, err, out)
		}
		ran[words[0]+" "+words[1]] = true
	}
	if len(ran) < 6 {
		t.Errorf("only these were found: %v", ran)
	}
}

// buildCommand compiles holdfast, and returns the folder that it is in.
func buildCommand(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}
