//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// earlier is the version that a rolling update may still run beside this one: the last release, and
// until there is one, a commit. Whoever raises it gives up what the test below shows of the older.
const earlier = "b2f2fe9f341892e9dbc00822735131439bb2f49c"

// buildEarlier builds the command of the earlier version. A shallow clone lacks it, and fetches it.
const buildEarlier = `
	cd "$(git rev-parse --show-toplevel)"
	git cat-file -e "$1^{commit}" 2>/dev/null || git fetch -q --depth=1 origin "$1"
	git archive "$1" | tar -xf - -C "$2"
	cd "$2" && GOWORK= GOFLAGS=-buildvcs=false go build -trimpath -o earlier ./etcdstore/cmd/holdfast-etcd`

// Each command of these scripts is of one of two versions: the first one is $A, which holds, and
// the second one is $B. They exclude each other, wait for each other, know each other's token and
// end each other's hold.
const (
	excluded = `
		$A run x$$ -- sh -c 'echo $HOLDFAST_TOKEN >first; until test -e go; do sleep .01; done' & a=$!
		until test -s first; do sleep .01; done
		$B run x$$ --try -- echo both run; echo refused $?
		$B run x$$ -v -- sh -c 'echo $HOLDFAST_TOKEN >second' 2>waits & b=$!
		until test -s waits; do sleep .01; done; >go; wait $a; echo first $?; wait $b; echo second $?
		test $(cat second) -gt $(cat first) && echo tokens rise`
	excludedWant = "refused 75 first 0 second 0 tokens rise"

	// The folder has other files since: the second version is refused with an error, until what is
	// in the folder is deleted.
	apart = `
		$A run x$$ -- sh -c 'echo $HOLDFAST_TOKEN >first; until test -e go; do sleep .01; done' & a=$!
		until test -s first; do sleep .01; done
		$B run x$$ --try -- echo both run; echo refused $?; $B break x$$ --yes; echo refused $?
		>go; wait $a; echo first $?; $B run x$$ --try -- echo both run; echo second $?`
	apartWant = "refused 64 refused 64 first 0 second 64"

	together = `
		ticket=$($A acquire t$$); $B run t$$ --try -- echo both run; echo refused $?; $B release "$ticket"; $A run t$$ --try -- true; echo free $?
		$A run s$$ --shared -- sh -c 'until test -e end; do sleep .01; done' & a=$!
		until $B show s$$ >shown; do sleep .01; done
		$B run s$$ --shared --try -- echo both read; $B run s$$ --try -- echo reads beside a writer; echo refused $?; >end; wait $a
		$A once o$$ --slot 2026-11-28T03:00:00Z/365d -- echo done; $B once o$$ --slot 2026-11-28T03:00:00Z/365d -- echo again
		$A run b$$ -- sleep 1000 & a=$!; until $B show b$$ >shown; do sleep .01; done; $B break b$$ --yes >broken; wait $a; echo ended $?`
	togetherWant = " refused 75 free 0 both read refused 75 done ended 121"
)

// TestTwoVersions shows that this version and an earlier one exclude each other on one store,
// whichever comes first. A later version that cannot may refuse the store with an error instead:
// then the row of the store says so.
func TestTwoVersions(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("sh", "-euc", buildEarlier, "sh", earlier, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	redis, postgres := servers.StartRedises(t, 3), servers.StartPostgres(t).URL("postgres")
	etcd := servers.EtcdAddrs(servers.StartEtcdCluster(t, 1))
	nodes := ""
	for _, node := range redis {
		nodes += " redis://" + node.Addr + "/1"
	}
	advisory := strings.Replace(postgres, "postgres:", "postgres+advisory:", 1) + "&tokens=holdfast_tokens"
	for store, url := range map[string]string{
		"file": "file:locks", "redis": "redis://" + redis[0].Addr, "table": postgres, "etcd": "etcd://" + etcd[0],
		"quorum": nodes, "advisory": advisory,
	} {
		for order, programs := range map[string][2]string{"earlier first": {dir + "/earlier", "holdfast"}, "this first": {"holdfast", dir + "/earlier"}} {
			t.Run(store+", "+order, func(t *testing.T) {
				t.Parallel()
				script, want := excluded, excludedWant
				switch store {
				case "file":
					script, want = apart, apartWant
				case "quorum", "advisory": // They have neither readers nor a ticket.
				default:
					script, want = script+together, want+togetherWant
				}
				if store == "table" || store == "advisory" { // An update begins with what the earlier version has made.
					script = dir + "/earlier migrate -q; holdfast migrate -q\n" + script
				}
				cmd := exec.CommandContext(t.Context(), "timeout", "-k1", "60", "bash", "-c", script)
				cmd.Dir = t.TempDir()
				cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+url, "A="+programs[0], "B="+programs[1])
				var said strings.Builder
				cmd.Stderr = &said
				out, err := cmd.Output()
				if got := strings.Join(strings.Fields(string(out)), " "); got != want {
					t.Errorf("%q, want %q (%v)\n%s", got, want, err, &said)
				}
			})
		}
	}
}
