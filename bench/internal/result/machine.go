package result

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// A Machine is what a scenario was measured on and with. It names neither a
// host nor a path.
type Machine struct {
	CPUs     int               `json:"cpus"`
	CPU      string            `json:"cpu"`
	Kernel   string            `json:"kernel"`
	Commit   string            `json:"commit,omitempty"`
	Versions map[string]string `json:"versions"` // of Go, servers and modules
}

// libraries are the modules whose versions matter.
var libraries = []string{
	"github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/go-redsync/redsync/v4",
	"github.com/bsm/redislock", "github.com/jackc/pgx/v5", "github.com/allisson/go-pglock/v3",
}

// ThisMachine describes the machine that runs this; servers are the versions of
// those that take part.
func ThisMachine(servers map[string]string) Machine {
	m := Machine{
		CPUs:     runtime.NumCPU(),
		CPU:      field("/proc/cpuinfo", "model name"),
		Kernel:   runtime.GOOS + " " + firstLine("/proc/sys/kernel/osrelease") + " " + runtime.GOARCH,
		Commit:   commit(),
		Versions: map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")},
	}
	for name, version := range servers {
		m.Versions[name] = version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, dep := range info.Deps {
		for _, library := range libraries {
			if dep.Path == library {
				m.Versions[library] = dep.Version
			}
		}
	}
	return m
}

// LoadAverage returns how many processes wanted to run in the last minute, 0
// where the system does not tell.
func LoadAverage() float64 {
	var load float64
	if _, err := fmt.Sscan(firstLine("/proc/loadavg"), &load); err != nil {
		return 0
	}
	return load
}

// A CPUTime is what the CPUs of this machine have done, in ticks of its kernel.
type CPUTime struct{ all, stolen float64 }

// ReadCPUTime returns it, zero where the system does not tell.
func ReadCPUTime() CPUTime {
	var t CPUTime
	for i, word := range strings.Fields(strings.TrimPrefix(firstLine("/proc/stat"), "cpu ")) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return CPUTime{}
		}
		const steal, guest = 7, 8 // guests are counted as users as well
		if i == steal {
			t.stolen = n
		}
		if i < guest {
			t.all += n
		}
	}
	return t
}

// Stolen returns the share that the host of a virtual machine has given to
// others since an earlier reading.
func (t CPUTime) Stolen(before CPUTime) float64 {
	if t.all <= before.all {
		return 0
	}
	return (t.stolen - before.stolen) / (t.all - before.all)
}

// commit names the state of the source, as far as git is there to tell.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty=, with changes").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
