package command

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestServers is the command with stores that need servers, which each script
// has for itself: some are stopped.
func TestServers(t *testing.T) {
	scripts, err := filepath.Glob("testdata/servers/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			testServers(t, script)
		})
	}
}

func testServers(t *testing.T, script string) {
	redis := servers.StartRedises(t, 3)
	locked := servers.StartRedis(t, "--requirepass", "sesame")
	postgres := servers.StartPostgres(t).URL("postgres")
	testscript.Run(t, scriptParams(testscript.Params{Files: []string{script}}, func(env *testscript.Env) {
		for i, node := range redis {
			env.Setenv(fmt.Sprintf("REDIS%d", i+1), "redis://"+node.Addr)
			env.Setenv(fmt.Sprintf("PID%d", i+1), fmt.Sprint(node.PID()))
		}
		env.Setenv("LOCKED", locked.Addr)
		env.Setenv("POSTGRES", postgres)
		env.Setenv("ADVISORY", strings.Replace(postgres, "postgres:", "postgres+advisory:", 1))
	}))
}
