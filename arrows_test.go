package holdfast_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/holdfast-go/holdfast"

// arrows lists what each package may import beyond the standard library. The
// arrows point down only; docs/design.md shows them.
var arrows = map[string][]string{
	"":            {"driver"},
	"driver":      {},
	"drivertest":  {"driver"},
	"memstore":    {"driver", "internal/lockqueue", "internal/notices"},
	"etcdstore":   {"driver", "internal/batch", "internal/lockqueue", "internal/notices", "internal/retry", "internal/transport", "go.etcd.io/etcd", "google.golang.org", "go.uber.org", "golang.org/x", "github.com/coreos/go-semver", "github.com/coreos/go-systemd", "github.com/gogo/protobuf", "github.com/golang/protobuf", "github.com/grpc-ecosystem/grpc-gateway"},
	"s3store":     {"driver", "internal/lockqueue", "internal/notices", "internal/retry", "github.com/aws"},
	"filestore":   {"driver", "internal/lockqueue", "internal/notices", "internal/retry", "golang.org/x/sys"},
	"pgstore":     {"driver", "internal/batch", "internal/lockqueue", "internal/notices", "internal/retry", "pgstore/internal", "github.com/jackc", "golang.org/x/sync", "golang.org/x/text"},
	"quorumstore": {"driver"},

	"pgstore/advisory": {"driver", "internal/batch", "internal/lockqueue", "internal/notices", "internal/retry", "pgstore/internal", "github.com/jackc", "golang.org/x/sync", "golang.org/x/text"},

	// An examination knows all stores of this module, and the page shows examinations.
	"doctor": {"", "driver", "filestore", "quorumstore", "pgstore", "redisstore", "internal/batch", "internal/lockqueue", "internal/notices", "internal/retry", "internal/transport", "github.com/jackc", "github.com/redis/go-redis", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sync", "golang.org/x/sys", "golang.org/x/text"},
	"lockui": {"doctor", "internal/lockview", "", "driver", "filestore", "quorumstore", "pgstore", "redisstore", "internal/batch", "internal/lockqueue", "internal/notices", "internal/retry", "internal/transport", "github.com/jackc", "github.com/redis/go-redis", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sync", "golang.org/x/sys", "golang.org/x/text"},

	// The recipes know no store.
	"election":        {"", "driver", "internal/retry"},
	"once":            {"", "driver"},
	"once/cronlock":   {"", "driver", "once", "github.com/robfig/cron"},
	"once/gocronlock": {"", "driver", "once", "github.com/go-co-op/gocron", "github.com/google/uuid", "github.com/jonboulle/clockwork", "github.com/robfig/cron"},
	"httplock":        {"", "driver"},
	"metrics":         {"", "driver"},
	"ratelimit":       {"", "driver", "internal/retry"},

	"redisstore": {"driver", "internal/batch", "internal/lockqueue", "internal/notices", "internal/retry", "internal/transport", "github.com/redis/go-redis", "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys"},
}

// Every package that may be imported has its row above, and imports nothing else.
func TestImportArrows(t *testing.T) {
	const format = `{{if .GoFiles}}{{.Name}} {{.ImportPath}}{{range .Deps}} {{.}}{{end}}{{end}}`
	for _, goos := range []string{"linux", "darwin", "windows"} {
		cmd := exec.Command("go", "list", "-f", format, "./...", "./etcdstore", "./s3store")
		cmd.Env = append(cmd.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
		listed := 0
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			pkg := strings.Trim(strings.TrimPrefix(fields[1], module), "/")
			if fields[0] == "main" || strings.Contains("/"+pkg, "/internal/") {
				continue
			}
			listed++
			allowed, ok := arrows[pkg]
			if !ok {
				t.Errorf("package %q has no row", pkg)
			}
			for _, path := range fields[2:] {
				host, _, _ := strings.Cut(path, "/")
				own := strings.Trim(strings.TrimPrefix(path, module), "/")
				permitted := slices.ContainsFunc(allowed, func(prefix string) bool {
					return own == prefix || strings.HasPrefix(own, prefix+"/")
				})
				if strings.Contains(host, ".") && !permitted {
					t.Errorf("on %s, package %q depends on %s", goos, pkg, path)
				}
			}
		}
		if listed != len(arrows) {
			t.Errorf("on %s, %d packages are listed of %d", goos, listed, len(arrows))
		}
	}
}
