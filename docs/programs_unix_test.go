//go:build unix

package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// tryOut runs a program of the README on a real server.
func tryOut(t *testing.T, program, executable string) {
	var address string
	if strings.Contains(program, "DATABASE_URL") {
		address = "DATABASE_URL=" + servers.StartPostgres(t).URL("postgres")
	} else {
		address = "REDIS_URL=redis://" + servers.StartRedis(t).Addr
	}
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), address)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the lock is ours, its token is 1") {
		t.Errorf("with %s it ends with %v and says:\n%s", address, err, out)
	}
}
