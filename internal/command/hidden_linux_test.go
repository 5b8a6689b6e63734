package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hiddenRows are scripts that have a /proc that is mounted with hidepid=2, and what they print.
// $U starts a program as nobody; hidden is a sleep that nobody may read, and therefore is not
// dumpable; foreign is a setpriv that runs as root.
var hiddenRows = []struct{ name, script, want string }{
	{"left behind", `
		$U holdfast run a -- sh -c '../hidden 1000 & echo $! >pid; exit 5'; echo $?; ls /proc/$(cat pid)`, "5"},
	{"supervisor killed", `
		$U holdfast run a -- sh -c '../hidden 1000 & (../hidden 1000 & echo $! >pid); echo $PPID >s; sleep 1000' & p=$!
		until test -s s; do sleep .01; done; kill -9 $(cat s); wait $p; echo $?; ls /proc/$(cat pid)`, "121"},
	{"the shell that controls the job", `
		echo 'test $(ps -o pgid= -p $PPID) != $(ps -o pgid= -p $$) && exit 7' >job
		script -qec "perl -e 'if (!fork) { \$( = \$) = \"65534 65534\"; \$< = \$> = 65534; exec @ARGV } wait; exit \$? >> 8' holdfast run a -- sh ./job" /dev/null
		echo $?`, "7"},
	{"another user's", `
		$U holdfast run a -- sh -c '../foreign --reuid 0 sleep 1000 & echo $! >pid; exit 6' 2>err & p=$!
		until grep -q "have not ended ($(cat pid))" err; do sleep .1; done; s=$(pgrep -x supervisor -P $p)
		ticks() { set -- $(cut -d' ' -f14,15 /proc/$s/stat); echo $(($1 + $2)); }
		u=$(ticks); sleep 2; test $(($(ticks) - u)) -lt 20 && echo idle; kill -9 $(cat pid); wait $p; echo $?`, "idle 6"},
	{"another user's, which has closed its descriptors, and the supervisor is killed", `
		$U holdfast run a -- bash -c 'for fd in {3..30}; do eval "exec $fd>&-"; done; ../foreign --reuid 0 sleep 3 & echo $! >pid; echo $PPID >s; wait' & p=$!
		until test -s s && grep -q sleep /proc/$(cat pid)/comm; do sleep .01; done; kill -9 $(cat s)
		$U holdfast run a -- true; grep -q 'State:.[^Z]' /proc/$(cat pid)/status && echo lives || echo dead; wait $p; echo $?`, "dead 121"},
	// Nothing is shown but the reason.
	{"a store that may be read, and not written", `
		export HOLDFAST_STORE=file:../locks; holdfast run x -- sh -c '>has; exec sleep 1000' & until test -e has; do sleep .01; done; chmod 555 ../locks
		for v in ls 'show x' 'wait x --timeout 0' 'break x --yes' 'run y --try -- true'; do $U holdfast $v >said 2>&1; echo $? $(grep -c 'permission denied' said); done | sort | uniq -c
		kill %1`, "5 69 1"},
}

// TestHiddenDescendants: what hides in /proc is killed all the same. What is not ours to kill is
// reported, and waited for at little cost.
func TestHiddenDescendants(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount /proc")
	}
	dir := openTempDir(t)
	installProgram(t, dir)
	if out, err := exec.CommandContext(t.Context(), "sh", "-c",
		`cd "$0" && cp /bin/sleep hidden && chmod 711 hidden`, dir).CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	for i, row := range hiddenRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			own := filepath.Join(dir, fmt.Sprint(i))
			if err := os.Mkdir(own, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(own, nobodyID, nobodyID); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "timeout", "-k1", "25", "unshare", "-m", "bash", "-c",
				"mount -t proc -o hidepid=2 proc /proc\n"+row.script)
			cmd.Dir = own
			cmd.Env = append(os.Environ(), "HOLDFAST_STORE=file:locks", "PATH="+dir+":"+os.Getenv("PATH"),
				fmt.Sprintf("U=setpriv --reuid %d --regid %d --clear-groups", nobodyID, nobodyID))
			out, err := cmd.Output()
			if got := strings.Join(strings.Fields(string(out)), " "); got != row.want {
				t.Errorf("%q, want %q (%v)", got, row.want, err)
			}
		})
	}
}
