// Package examples runs the example programs and checks what they print, on each store that needs
// no server.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var want = map[string]string{
	"order-once": "order 0 was charged 1 time\norder 1 was charged 1 time\norder 2 was charged 1 time\n" +
		"order 3 was charged 1 time\norder 4 was charged 1 time\n",
	"report":   "orders: 42\nrefunds: 1\ncomplaints: 0\n",
	"long-job": "renewed by itself: still held after twice the TTL\nextended by hand: still held after twice the TTL\n",
	"fenced-writer": "successor writes: done\npaused holder writes: refused, stale token\n" +
		"had it asked, it would have known: true\nthe register holds: new\n",
	"shutdown": "terminated\nthe server has shut down: <nil>\nthe leader has resigned: election: no leader\n" +
		"the request was answered: 200 OK, done under its lock: true\n",
	"worker-pool": "20 jobs were done 20 times by 3 processes\n",
}

// processes are the examples of several processes, which do not share memory.
var processes = map[string]bool{"worker-pool": true}

func TestExamples(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	for name, output := range want {
		for kind, store := range map[string]string{"memory": "memory:", "file": "file://" + filepath.ToSlash(filepath.Join(dir, name))} {
			if kind == "memory" && processes[name] {
				continue
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(filepath.Join(bin, name))
				cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+store)
				out, err := cmd.CombinedOutput()
				if err != nil || string(out) != output {
					t.Errorf("%v printed:\n%s\nwant:\n%s", err, out, output)
				}
			})
		}
	}
}

// Every folder here is an example that is run.
func TestAllExamplesAreRun(t *testing.T) {
	programs, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		if _, ok := want[filepath.Dir(program)]; !ok {
			t.Errorf("%s is not run", program)
		}
	}
}
