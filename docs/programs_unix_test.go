//go:build unix

package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore"
)

// TestReadmePrograms: all code of the README is a whole program. It compiles as it stands, and
// takes its locks on each kind of server that it names.
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
	tryOut(t, build(t, program))
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

// tryOut runs a program of the README on real servers.
func tryOut(t *testing.T, executable string) {
	database := servers.StartPostgres(t).URL("postgres")
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.New(pool, nil).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"redis://" + servers.StartRedis(t).Addr, database} {
		cmd := exec.Command(executable)
		cmd.Env = append(os.Environ(), "LOCKS_URL="+url)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "the lock is ours, its token is 1") || !strings.Contains(string(out), "the result is <nil>") {
			t.Errorf("with %s it ends with %v and says:\n%s", url, err, out)
		}
	}
}
