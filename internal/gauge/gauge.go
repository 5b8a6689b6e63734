//go:build unix

package gauge

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// An Opener opens the store that has these URLs: one, or the nodes of a quorum.
type Opener func(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error)

// Options say what is measured, and for how long.
type Options struct {
	Stores []string
	Open   Opener

	// Worker is the program whose processes call Work.
	Worker func() *exec.Cmd

	// Each is how long each measurement takes.
	Each time.Duration

	// Most is the greatest number of workers.
	Most int

	// Progress is called at the begin of each measurement, if it is not nil.
	Progress func(what string)
}

// A Report is what was measured. What could not be is nil.
type Report struct {
	Store  string    `json:"store"`
	At     time.Time `json:"at"`
	Go     string    `json:"go"`
	System string    `json:"system"`
	CPUs   int       `json:"cpus"`

	// Acquire and Release are of one worker that has the store for itself.
	Acquire *Times `json:"acquire"`
	Release *Times `json:"release"`

	// Rates are pairs of acquire and release by so many workers, each with a
	// lock of its own.
	Rates []Rate `json:"rates"`

	// HandOver is the time from the call of Release in one process until another
	// process, which waits, has the lock.
	HandOver *Times `json:"hand_over,omitempty"`

	// Contention is of workers in several processes who all want one lock.
	Contention *Contention `json:"contention,omitempty"`

	// Wire is what one pair sends over the network, Waiting what each waiter
	// does in a second, and Holding each lock that is held.
	Wire    *Wire    `json:"wire,omitempty"`
	Waiting *Standby `json:"waiting,omitempty"`
	Holding *Standby `json:"holding,omitempty"`
}

// A Rate is how often something was done.
type Rate struct {
	Workers   int     `json:"workers"`
	PerSecond float64 `json:"per_second"`
	Times     *Times  `json:"times"` // of a pair
}

// Wire is traffic for one pair of acquire and release.
type Wire struct {
	Sent     float64 `json:"bytes_sent"`
	Received float64 `json:"bytes_received"`
	Requests float64 `json:"requests"`
}

// Standby is what something costs while nothing happens.
type Standby struct {
	Count    int     `json:"count"`
	Requests float64 `json:"requests_per_second"` // of each
	Bytes    float64 `json:"bytes_per_second"`    // of each, both ways
}

// A meter makes the measurements.
type meter struct {
	Options
	ctx    context.Context
	client *holdfast.Client
	stores []string // by way of the proxies
	proxy  []*faultproxy.Proxy
}

// Run measures. The end of ctx ends it with an error.
func Run(ctx context.Context, o Options) (*Report, error) {
	m := &meter{Options: o, ctx: ctx}
	defer m.close()
	client, err := o.Open(ctx, o.Stores, nil)
	if err != nil {
		return nil, err
	}
	m.client = client
	can := client.Guarantees()
	r := &Report{
		Store: can.Store, At: time.Now().Round(time.Second), CPUs: runtime.NumCPU(),
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
	}
	measurements := []func(*Report) error{m.latency, m.rates}
	if can.Scope != driver.ScopeProcess {
		measurements = append(measurements, m.handOver, m.contention)
	}
	measurements = append(measurements, m.wire, m.waiting, m.holding)
	for _, measure := range measurements {
		if err := measure(r); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (m *meter) close() {
	if m.client != nil {
		_ = m.client.Close() // it holds nothing that its TTL does not end
	}
	for _, p := range m.proxy {
		p.Close()
	}
}

func (m *meter) tell(format string, args ...any) {
	if m.Progress != nil {
		m.Progress(fmt.Sprintf(format, args...))
	}
}

// name is the name of a lock, which is no other program's.
func name(what string, number int) string { return fmt.Sprintf("holdfast-bench/%s/%d", what, number) }
