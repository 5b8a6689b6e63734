package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs returns the whole programs of the README, in order.
func programs(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, block := range strings.Split(string(readme), "```go\n")[1:] {
		program, _, closed := strings.Cut(block, "```")
		if !closed || !strings.HasPrefix(program, "package main\n") {
			t.Fatalf("a block of Go in the README is no whole program:\n%s", block)
		}
		all = append(all, program)
	}
	return all
}

// build compiles a program as a package of this module, and returns the path of
// the executable. Nothing is written into the module: an overlay stands for the
// source file.
func build(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	source, overlay, executable := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program.exe")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	module, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(module, "program", "main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", executable, "./program")
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return executable
}

// TestReadmePrograms: all code of the README is whole programs. They compile as they stand, and
// where there are servers, take their locks on each kind that they name.
func TestReadmePrograms(t *testing.T) {
	all := programs(t)
	if len(all) != 1 {
		t.Errorf("%d programs in the README, want one", len(all))
	}
	for _, program := range all {
		tryOut(t, build(t, program))
	}
}
