//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore"
)

// A Scenario is one question that is measured for several contenders.
type Scenario struct {
	Name       string
	Title      string
	contenders []Contender // Ours is the first.
	store      storeKind
	figures    []figure
	lockers    int // how many are opened; one if it is 0
	ttl        time.Duration

	measure func(t *trial) ([]float64, error) // a value for each figure
}

// A storeKind is what the contenders of a scenario lock with.
type storeKind uint8

const (
	local storeKind = iota
	redisServer
	redisQuorum
	postgresServer
	etcdMember
)

// A figure is what is measured, with its unit.
type figure struct {
	name  string
	lower bool // less is better
	write func(value float64) string
}

var (
	pairRate   = figure{"pairs/s", false, func(v float64) string { return fmt.Sprintf("%.0f", v) }}
	idleTime   = figure{"hand-over", true, func(v float64) string { return time.Duration(v).Round(time.Microsecond).String() }}
	longest    = figure{"longest", true, idleTime.write}
	clientCPU  = figure{"client CPU", true, func(v float64) string { return fmt.Sprintf("%.2f %%", v) }}
	lockMemory = figure{"memory for a lock", true, func(v float64) string { return fmt.Sprintf("%.0f B", v) }}
)

// A trial is a contender that is open for one measurement.
type trial struct {
	ctx     context.Context
	span    time.Duration
	lockers []Locker
}

// Scenarios lists them in the order of docs/benchmarks.md.
func Scenarios() []Scenario {
	redisAll := slices.Concat(Redis(), RedisRaw())
	all := []Scenario{pairsOf("memory", local, Memory(), 1), pairsOf("redis", redisServer, redisAll, 1), pairsOf("redis", redisServer, redisAll, 64)}
	all = append(all, oneNameOf(), handOverOf("redis", redisServer, Redis()), heldOf("redis", redisServer, Redis()[:2], 10_000))
	for _, goroutines := range []int{1, 64} {
		all = append(all, pairsOf("quorum", redisQuorum, Quorum(), goroutines))
	}
	for _, goroutines := range []int{1, 64} {
		all = append(all, pairsOf("postgres", postgresServer, PostgresLease(), goroutines))
	}
	all = append(all, handOverOf("postgres", postgresServer, PostgresLease()))
	for _, goroutines := range []int{1, 64} {
		all = append(all, pairsOf("advisory", postgresServer, PostgresAdvisory(), goroutines))
	}
	all = append(all, handOverOf("advisory", postgresServer, PostgresAdvisory()))
	for _, goroutines := range []int{1, 64} {
		all = append(all, pairsOf("etcd", etcdMember, Etcd(), goroutines))
	}
	return append(all, handOverOf("etcd", etcdMember, Etcd()), heldOf("etcd", etcdMember, Etcd(), 1000))
}

// pairsOf measures acquire and release in a loop, without contention.
func pairsOf(prefix string, store storeKind, contenders []Contender, goroutines int) Scenario {
	return Scenario{
		Name: fmt.Sprintf("%s-pairs-%d", prefix, goroutines), Title: fmt.Sprintf("acquire and release, %d goroutines, a name each", goroutines),
		contenders: contenders, store: store, figures: []figure{pairRate}, ttl: 10 * time.Second,
		measure: func(t *trial) ([]float64, error) {
			counts, err := t.pairs(goroutines, ownNames)
			return []float64{sum(counts) / t.span.Seconds()}, err
		},
	}
}

// oneNameOf measures 16 goroutines of one process that want one name. The TTL is short enough that
// a waiter that lost its notification tries again within the measurement.
func oneNameOf() Scenario {
	return Scenario{
		Name: "redis-one-name", Title: "16 goroutines of one process on one name",
		contenders: Redis(), store: redisServer, figures: []figure{pairRate}, ttl: 3 * time.Second,
		measure: func(t *trial) ([]float64, error) {
			counts, err := t.pairs(16, oneName)
			return []float64{sum(counts) / t.span.Seconds()}, err
		},
	}
}

// handOverOf measures how long a lock is idle between two clients that want it.
func handOverOf(prefix string, store storeKind, contenders []Contender) Scenario {
	return Scenario{
		Name: prefix + "-handover", Title: "from the release by one client until another, which waits, has the lock",
		contenders: waiting(contenders), store: store, figures: []figure{idleTime, longest}, ttl: 10 * time.Second, lockers: 2,
		measure: func(t *trial) ([]float64, error) {
			idle, err := handOvers(t.ctx, t.lockers[0], t.lockers[1], 20)
			if err != nil {
				return nil, err
			}
			slices.Sort(idle)
			return []float64{float64(idle[len(idle)/2]), float64(idle[len(idle)-1])}, nil
		},
	}
}

// heldOf measures the cost of holding many locks, with their renewals, for one TTL.
func heldOf(prefix string, store storeKind, contenders []Contender, locks int) Scenario {
	const ttl = 6 * time.Second
	return Scenario{
		Name: prefix + "-held", Title: fmt.Sprintf("%d locks held and renewed by one process, TTL %v", locks, ttl),
		contenders: contenders, store: store, figures: []figure{clientCPU, lockMemory}, ttl: ttl,
		measure: func(t *trial) (values []float64, err error) {
			empty := heapInUse()
			err = holdMany(t.ctx, t.lockers[0], locks, func() error {
				memory, before := (heapInUse()-empty)/float64(locks), cpuSeconds()
				time.Sleep(ttl)
				values = []float64{(cpuSeconds() - before) / ttl.Seconds() * 100, memory}
				return nil
			})
			return values, err
		},
	}
}

func waiting(all []Contender) []Contender {
	return slices.DeleteFunc(slices.Clone(all), func(c Contender) bool { return !c.Waits })
}

// pairs measures pairs after a warm-up.
func (t *trial) pairs(goroutines int, name func(int) string) ([]float64, error) {
	if _, err := pairs(t.ctx, t.lockers[0], goroutines, name, t.span/4); err != nil {
		return nil, err
	}
	runtime.GC()
	return pairs(t.ctx, t.lockers[0], goroutines, name, t.span)
}

// Run measures all contenders of a scenario in each round, on the same servers, in an order of the
// round's own, so that none always comes after the same one. It writes the median of each figure,
// and the median of the ratios within the rounds: how many times better the first contender is.
func (sc Scenario) Run(w io.Writer, rounds int, span time.Duration) (err error) {
	host := &servers.Host{}
	defer func() { err = errors.Join(err, host.Close()) }()
	var o Options
	var clear func()
	var setupErr error
	if err := host.Do(func() { o, clear, setupErr = sc.store.start(host) }); err != nil || setupErr != nil {
		return errors.Join(err, setupErr)
	}
	o.TTL = sc.ttl
	values := make([][][]float64, len(sc.contenders)) // of each round
	for round := range rounds {
		for _, i := range rand.New(rand.NewPCG(uint64(round), 0)).Perm(len(sc.contenders)) {
			if err := host.Do(clear); err != nil {
				return err
			}
			measured, err := sc.measureOnce(sc.contenders[i], o, span)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", sc.Name, sc.contenders[i].Name, err)
			}
			values[i] = append(values[i], measured)
		}
	}
	return sc.write(w, values)
}

// start starts the servers, and returns their addresses and a function that removes what another
// contender left behind.
func (kind storeKind) start(host *servers.Host) (o Options, clear func(), err error) {
	clear = func() {}
	switch kind {
	case redisServer, redisQuorum:
		n := 1
		if kind == redisQuorum {
			n = 5
		}
		all := servers.StartRedises(host, n)
		for _, server := range all {
			o.Servers = append(o.Servers, server.Addr)
		}
		clear = func() {
			for _, server := range all {
				server.Do("FLUSHALL")
			}
		}
	case postgresServer:
		server := servers.StartPostgres(host)
		o.Servers = []string{server.URL("postgres")}
		err = createTables(o.Servers[0])
	case etcdMember:
		o.Servers = servers.EtcdAddrs(servers.StartEtcdCluster(host, 1))
	}
	return o, clear, err
}

func createTables(url string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, postgresPlain); err != nil {
		return err
	}
	store := pgstore.New(pool, nil)
	return errors.Join(store.Migrate(ctx), store.Close())
}

// measureOnce opens a contender for one measurement.
func (sc Scenario) measureOnce(c Contender, o Options, span time.Duration) (values []float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t := &trial{ctx: ctx, span: span}
	for range max(1, sc.lockers) {
		l, err := c.Open(o)
		if err != nil {
			return nil, err
		}
		t.lockers = append(t.lockers, l)
	}
	values, err = sc.measure(t)
	for _, l := range t.lockers {
		err = errors.Join(err, l.Close())
	}
	return values, err
}

// write writes a table in Markdown.
func (sc Scenario) write(w io.Writer, values [][][]float64) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(t, "\n%s: %s\n\n|\t", sc.Name, sc.Title)
	for _, f := range sc.figures {
		fmt.Fprintf(t, "| %s\t| ratio\t", f.name)
	}
	fmt.Fprint(t, "|\n|---\t")
	for range sc.figures {
		fmt.Fprint(t, "|--:\t|--:\t")
	}
	fmt.Fprintln(t, "|")
	for i, c := range sc.contenders {
		fmt.Fprintf(t, "| %s\t", c.Name)
		for f, figure := range sc.figures {
			var own, ratios []float64
			for round, measured := range values[i] {
				own = append(own, measured[f])
				ratio := values[0][round][f] / measured[f]
				if figure.lower {
					ratio = 1 / ratio
				}
				ratios = append(ratios, ratio)
			}
			fmt.Fprintf(t, "| %s\t| %.2f×\t", figure.write(median(own)), median(ratios))
		}
		fmt.Fprintln(t, "|")
	}
	return t.Flush()
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func sum(values []float64) (total float64) {
	for _, value := range values {
		total += value
	}
	return total
}

// heapInUse returns the memory in use, in bytes, with the stacks of goroutines and without garbage.
func heapInUse() float64 {
	for range 3 { // A sync.Pool keeps values for two collections.
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapAlloc + memory.StackInuse)
}

// cpuSeconds returns the processor time that this process has used.
func cpuSeconds() float64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
