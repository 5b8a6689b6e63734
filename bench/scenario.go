//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A scenario is one question that is measured for several contenders.
type scenario struct {
	name        string // for -only, and the name of the chart
	group       string // the heading above it
	title       string
	about       string
	metrics     []result.Metric
	contenders  []lockers.Contender
	ttl         time.Duration // 0 means defaultTTL
	nodes       int           // the number of Redis servers
	postgres    bool          // whether there is a PostgreSQL server
	etcdMembers int           // of a cluster of etcd
	placement   placement
	timeout     time.Duration // 0 means measureTimeout

	// workers is the number of processes that open the contender. If it is 0, it is this
	// process. With perSize there are as many more as the contender's Size.
	workers int
	perSize bool

	folder       bool          // whether the contenders open a folder, a new one each time
	postgresArgs []string      // configuration of the PostgreSQL server
	delay        time.Duration // what a proxy before each server adds to a round trip

	// measure makes one measurement of a contender.
	measure func(t *trial) (result.Sample, error)

	// together, if it is not nil, measures all contenders at once.
	together func(r *scenarioRun, progress io.Writer) ([]result.Sample, error)
}

// A trial is a contender that is open for one measurement: in this process, or in workers.
type trial struct {
	*scenarioRun
	contender lockers.Contender
	ctx       context.Context
	locker    measure.Locker
	workers   []*measure.Worker
}

// scenarios lists them in the order of the page.
func scenarios() []scenario {
	return slices.Concat(redisScenarios(), limitScenarios(), quorumScenarios(), postgresScenarios(), etcdScenarios(), growthScenarios())
}

// measureTimeout bounds one measurement of a contender, unless its scenario has a timeout. It is
// longer than every regular duration.
const measureTimeout = 20 * time.Second

var errStuck = fmt.Errorf("it has not come to an end after %v", measureTimeout)

// defaultTTL is long enough to be irrelevant, in scenarios that do not measure it.
const defaultTTL = 10 * time.Second

// A scenarioRun is a scenario with its servers, and the span of a measurement.
type scenarioRun struct {
	scenario
	redis   []*servers.Redis
	pg      *servers.Postgres
	etcd    []*servers.Etcd
	proxies map[string]*faultproxy.Proxy // by the address of the server, if there is a delay
	reads   float64                      // how often readServer has read a Redis: each is a command
	empty   serverUsage                  // before the contender was opened; only with sizes of processes
	span    time.Duration                // of one measurement
}

// runScenario measures all contenders in each round, on the same servers, in an order of the
// round's own, so that no contender always comes after the same one.
func runScenario(sc scenario, rounds int, span time.Duration, progress io.Writer) (*result.Scenario, error) {
	res := &result.Scenario{
		Name: sc.name, Title: sc.title, Group: sc.group, About: sc.about, Metrics: sc.metrics,
		Date: time.Now().UTC().Truncate(time.Minute), Rounds: rounds,
	}
	for _, c := range sc.contenders {
		res.Contenders = append(res.Contenders,
			result.Contender{Name: c.Name, Settings: c.Settings, Role: string(c.Role), Against: c.Against})
	}
	host := &servers.Host{}
	var err error
	failed := host.Do(func() {
		var r *scenarioRun
		if r, err = startServers(host, sc, span); err == nil {
			err = r.measureRounds(res, progress)
			for _, p := range r.proxies {
				p.Close()
			}
		}
	})
	return res, errors.Join(err, failed, host.Close())
}

// startServers starts the servers of a scenario.
func startServers(host *servers.Host, sc scenario, span time.Duration) (*scenarioRun, error) {
	r := &scenarioRun{scenario: sc, span: span}
	if r.ttl == 0 {
		r.ttl = defaultTTL
	}
	r.redis = servers.StartRedises(host, sc.nodes)
	for _, server := range r.redis {
		if err := r.delayServer(server.Addr); err != nil {
			return r, err
		}
	}
	if sc.etcdMembers > 0 {
		r.etcd = servers.StartEtcdCluster(host, sc.etcdMembers)
	}
	if sc.postgres {
		r.pg = servers.StartPostgres(host, sc.postgresArgs...)
		if err := r.delayServer(r.pg.Addr); err != nil {
			return r, err
		}
		return r, r.createTables()
	}
	return r, nil
}

// delayServer starts a proxy before a server, if the scenario has a delay.
func (r *scenarioRun) delayServer(addr string) error {
	if r.delay == 0 {
		return nil
	}
	proxy, err := faultproxy.Listen(addr)
	if err != nil {
		return err
	}
	proxy.Delay(faultproxy.Up, r.delay/2, r.delay/2)
	proxy.Delay(faultproxy.Down, r.delay/2, r.delay/2)
	if r.proxies == nil {
		r.proxies = map[string]*faultproxy.Proxy{}
	}
	r.proxies[addr] = proxy
	return nil
}

func (r *scenarioRun) measureRounds(res *result.Scenario, progress io.Writer) (err error) {
	var pids []int
	for _, server := range r.redis {
		pids = append(pids, server.PID())
	}
	unpin, err := r.placement.pin(pids)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unpin()) }()
	before := result.ReadCPUTime()
	defer func() { res.Stolen = result.ReadCPUTime().Stolen(before) }()
	res.Machine = result.ThisMachine(r.serverVersions())
	for round := range res.Rounds {
		res.Load = append(res.Load, measure.LoadAverage())
		if r.together != nil {
			samples, err := r.together(r, progress)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			for _, sample := range samples {
				sample.Round = round
				res.Samples = append(res.Samples, sample)
			}
			continue
		}
		for _, i := range rand.New(rand.NewPCG(uint64(round), 0)).Perm(len(r.contenders)) {
			c := r.contenders[i]
			for _, server := range r.redis { // What another contender left behind affects none.
				server.Do("FLUSHALL")
			}
			sample, err := r.measureOnce(c)
			if c.Role != lockers.Ours && errors.Is(err, errStuck) {
				fmt.Fprintf(progress, "%s, %s: %v\n", r.name, c.Name, err)
				sample, err = result.Sample{Stuck: true}, nil
			}
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, c.Name, err)
			}
			sample.Contender, sample.Round = c.Name, round
			res.Samples = append(res.Samples, sample)
		}
		fmt.Fprintf(progress, "%s: round %d of %d, load %.1f\n", r.name, round+1, res.Rounds, res.Load[round])
	}
	return nil
}

// serverVersions returns the versions of the servers.
func (r *scenarioRun) serverVersions() map[string]string {
	versions := map[string]string{}
	if len(r.redis) > 0 {
		versions["redis-server"] = infoField(r.redis[0].Do("INFO"), "redis_version")
	}
	if len(r.etcd) > 0 {
		line, _, _ := strings.Cut(r.etcd[0].Version(), "\n")
		versions["etcd"] = strings.TrimPrefix(line, "etcd Version: ")
	}
	var version string
	if r.pg != nil && r.queryValue("SHOW server_version", &version) == nil {
		versions["PostgreSQL"] = version
	}
	return versions
}

func (r *scenarioRun) options() lockers.Options {
	o := lockers.Options{TTL: r.ttl}
	for _, server := range r.redis {
		o.Servers = append(o.Servers, r.throughProxy(server.Addr, server.Addr))
	}
	o.Servers = append(o.Servers, servers.EtcdAddrs(r.etcd)...)
	if r.pg != nil {
		o.Servers = append(o.Servers, r.throughProxy(r.pg.Addr, r.pg.URL("postgres")))
	}
	return o
}

// throughProxy returns an address or URL of a server with the address of its proxy, if it has one.
func (r *scenarioRun) throughProxy(addr, url string) string {
	if p := r.proxies[addr]; p != nil {
		return strings.Replace(url, addr, p.Addr(), 1)
	}
	return url
}

// workerEnv makes this program a worker process.
const workerEnv = "HOLDFAST_BENCH_WORKER"

// measureOnce opens a contender for one measurement. The error is errStuck if that takes longer
// than measureTimeout.
func (r *scenarioRun) measureOnce(c lockers.Contender) (sample result.Sample, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.timeout, measureTimeout))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errors.Join(errStuck, err)
		}
	}()
	if r.perSize {
		if r.empty, err = r.readServer(); err != nil {
			return sample, err
		}
	}
	o := r.options()
	if r.folder {
		folder, err := os.MkdirTemp("", "holdfast-bench")
		if err != nil {
			return sample, err
		}
		defer os.RemoveAll(folder)
		o.Servers = []string{folder}
	}
	workers := r.workers
	if r.perSize {
		workers += c.Size
	}
	if workers == 0 {
		locker, err := c.Open(o)
		if err != nil {
			return sample, err
		}
		sample, err = r.measure(&trial{scenarioRun: r, contender: c, ctx: ctx, locker: locker})
		return sample, errors.Join(err, locker.Close())
	}
	self, err := os.Executable()
	if err != nil {
		return sample, err
	}
	command := func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), workerEnv+"=1")
		return cmd
	}
	setup := append([]string{cmp.Or(c.Base, c.Name), o.TTL.String()}, o.Servers...)
	err = measure.WithWorkers(ctx, workers, command, setup, func(workers []*measure.Worker) (err error) {
		sample, err = r.measure(&trial{scenarioRun: r, contender: c, ctx: ctx, workers: workers})
		return err
	})
	return sample, err
}

// openInWorker opens a contender in a worker process.
func openInWorker(setup []string) (measure.Locker, error) {
	c, ok := lockers.Find(setup[0])
	if !ok {
		return nil, fmt.Errorf("no contender %q", setup[0])
	}
	ttl, err := time.ParseDuration(setup[1])
	if err != nil {
		return nil, err
	}
	return c.Open(lockers.Options{TTL: ttl, Servers: setup[2:]})
}

// microseconds converts durations for a Sample.
func microseconds(durations ...time.Duration) []float64 {
	all := make([]float64, len(durations))
	for i, d := range durations {
		all[i] = float64(d) / float64(time.Microsecond)
	}
	return all
}

func goroutinesText(goroutines int) string {
	if goroutines == 1 {
		return "1 goroutine, on a name of its own"
	}
	return fmt.Sprint(goroutines, " goroutines, each on a name of its own")
}
