//go:build unix

package result

import (
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// A Machine describes the hardware and software with which a scenario was measured. It
// contains neither a host name nor a path.
type Machine struct {
	CPUs     int               `json:"cpus"`
	CPU      string            `json:"cpu"`
	Kernel   string            `json:"kernel"`
	Commit   string            `json:"commit,omitempty"`
	Versions map[string]string `json:"versions"` // of Go, servers and modules
}

// libraries are the modules with versions that matter.
var libraries = []string{
	"github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/go-redsync/redsync/v4",
	"github.com/bsm/redislock", "github.com/jackc/pgx/v5", "github.com/allisson/go-pglock/v3",
}

// ThisMachine describes the machine that runs this program. The servers are the versions of
// the servers that take part.
func ThisMachine(servers map[string]string) Machine {
	m := Machine{
		CPUs:     runtime.NumCPU(),
		CPU:      field("/proc/cpuinfo", "model name"),
		Kernel:   runtime.GOOS + " " + outputOf("uname", "-r") + " " + runtime.GOARCH,
		Commit:   outputOf("git", "describe", "--always", "--dirty=, with changes"),
		Versions: map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")},
	}
	maps.Copy(m.Versions, servers)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if slices.Contains(libraries, dep.Path) {
				m.Versions[dep.Path] = dep.Version
			}
		}
	}
	return m
}

// A CPUTime is the time that the CPUs of this machine have spent, in ticks of its kernel.
type CPUTime struct{ total, stolen float64 }

// ReadCPUTime returns the current CPUTime, zero where the system does not report it.
func ReadCPUTime() CPUTime {
	var t CPUTime
	for i, word := range strings.Fields(field("/proc/stat", "cpu ")) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return CPUTime{}
		}
		const steal, guest = 7, 8 // guest time is part of user time
		if i == steal {
			t.stolen = n
		}
		if i < guest {
			t.total += n
		}
	}
	return t
}

// Stolen returns the share of the CPU time that the host of a virtual machine has given to
// others since an earlier reading.
func (t CPUTime) Stolen(before CPUTime) float64 {
	if t.total <= before.total {
		return 0
	}
	return (t.stolen - before.stolen) / (t.total - before.total)
}

// outputOf returns the output of a program, "" if the program is not available.
func outputOf(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output() // A failed program has no output.
	return strings.TrimSpace(string(out))
}

// field returns the rest of the first line of a file that begins with a name, "" if there is
// none.
func field(path, name string) string {
	text, _ := os.ReadFile(path) // Other systems than Linux do not have it.
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Trim(rest, ": \t\n")
		}
	}
	return ""
}
