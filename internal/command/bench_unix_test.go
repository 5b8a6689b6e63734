//go:build unix

package command

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The whole life of a process: "holdfast run" beside flock(1) of util-linux, in
// turns. The medians are of all runs of each.
func BenchmarkCommand(b *testing.B) {
	dir := b.TempDir()
	holdfast := filepath.Join(dir, "holdfast")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", holdfast, "../../cmd/holdfast")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	commands := map[string][]string{
		"flock":    {"flock", filepath.Join(dir, "f"), "true"},
		"holdfast": {holdfast, "run", "x", "--store", "file://" + filepath.Join(dir, "locks"), "--", "true"},
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, args := range commands {
			began := time.Now()
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				b.Fatalf("%v: %v\n%s", args, err, out)
			}
			took[name] = append(took[name], time.Since(began))
		}
	}
	for name, times := range took {
		slices.Sort(times)
		b.ReportMetric(times[len(times)/2].Seconds()*1000, name+"-ms")
	}
}
