//go:build unix

package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore"
)

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
