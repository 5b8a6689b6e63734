//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// The groups of the scenarios below.
const (
	redisGrowth    = "Redis: growth"
	postgresGrowth = "PostgreSQL: growth"
	fileGrowth     = "Files: growth"
)

// growthScenarios measure what grows with the locks that are held, and with the clients that wait.
// The sizes of one scenario are its contenders, so that they are measured in turns.
func growthScenarios() []scenario {
	redisHeld := growthHeld("redis", redisGrowth, slices.Concat(lockers.Redis()[:2], lockers.RedisRaw()[1:2]))
	redisHeld.nodes = 1
	postgresHeld := growthHeld("postgres", postgresGrowth, slices.Concat(lockers.PostgresLease()[:1], lockers.PostgresLease()[3:4]))
	postgresHeld.postgres = true

	redisWaiting := growthWaiting("redis", redisGrowth, slices.Concat(
		lockers.Sized(lockers.Redis()[:1], "waiting", 100, 1, 10, 100, 700, 1000),
		lockers.Sized(lockers.Redis()[:2], "waiting", 100, 1, 10, 100)[3:]))
	redisWaiting.nodes = 1
	redisWaiting.metrics = slices.DeleteFunc(redisWaiting.metrics, func(m result.Metric) bool { return m.Key == "idleWAL" })
	// On two cores 1,000 clients take more than 4,000 connections, each a process of the server.
	postgresWaiting := growthWaiting("postgres", postgresGrowth,
		lockers.Sized(lockers.PostgresLease()[:1], "waiting", 100, 1, 10, 100, 300))
	postgresWaiting.postgres = true
	postgresWaiting.postgresArgs = []string{"max_connections=2000"}

	fileWaiting := growthWaiting("file", fileGrowth, lockers.Sized(lockers.File(), "waiting", 100, 1, 10, 100, 1000))
	fileWaiting.folder = true
	fileWaiting.metrics = slices.DeleteFunc(fileWaiting.metrics, func(m result.Metric) bool {
		return m.Key != "handover" && m.Key != "idleClient" && m.Key != "served"
	})

	redisSlow, postgresSlow := slowHandOver("redis", redisGrowth), slowHandOver("postgres", postgresGrowth)
	redisSlow.nodes, redisSlow.contenders = 1, lockers.Redis()[:3]
	postgresSlow.postgres, postgresSlow.contenders = true, slices.Concat(lockers.PostgresLease()[:1], lockers.PostgresAdvisory())

	redisCosts := growthCosts("redis", redisGrowth, lockers.Redis()[0])
	redisCosts.nodes = 1
	postgresCosts := growthCosts("postgres", postgresGrowth, lockers.PostgresLease()[0])
	postgresCosts.postgres, postgresCosts.postgresArgs = true, []string{"max_connections=300"}
	return []scenario{
		redisHeld, redisWaiting, redisSlow, redisCosts,
		postgresHeld, postgresWaiting, postgresSlow, postgresCosts,
		fileWaiting,
	}
}

// costMetrics are what things cost a client and its server, each for one of them.
func costMetrics(group, what string) []result.Metric {
	metrics := []result.Metric{
		{Key: "trips", Title: "requests for " + what, Unit: result.Count, Lower: true},
		{Key: "commands", Title: commandsOf(group) + " for " + what, Unit: result.Count, Lower: true},
		{Key: "wire", Title: "bytes for " + what, Unit: result.Bytes, Lower: true},
		{Key: "server", Title: "server CPU for " + what, Unit: result.Micros, Lower: true},
	}
	if group == postgresGrowth {
		metrics = append(metrics, result.Metric{Key: "wal", Title: "written ahead for " + what, Unit: result.Bytes, Lower: true})
	}
	return metrics
}

func commandsOf(group string) string {
	if group == postgresGrowth {
		return "transactions"
	}
	return "commands run"
}

// costs divides what clients and the server have used for a number of things.
func costs(client measure.Usage, server serverUsage, n float64) map[string]float64 {
	return map[string]float64{
		"trips":    client.Writes / n,
		"commands": server.commands / n,
		"wire":     (client.Sent + client.Received) / n,
		"server":   server.cpu / n * 1e6,
		"wal":      server.wal / n,
	}
}

// growthHeld measures a pair while other clients hold a number of names.
func growthHeld(store, group string, contenders []lockers.Contender) scenario {
	return scenario{
		name:  store + "-growth-held",
		group: group,
		title: "A pair while other names are held",
		about: "Acquire and release in a loop by one goroutine, on a server with 1, 1,000 and a million locks of other clients. " +
			"\"Holdfast is better\" beside another size of Holdfast is how many times better the first one is.",
		metrics: slices.Concat(
			[]result.Metric{{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true}},
			costMetrics(group, "a pair"),
			[]result.Metric{{Key: "memory", Title: "memory for a held name", Unit: result.Bytes, Lower: true}}),
		contenders: lockers.Sized(contenders, "held", 1, 1, 1_000, 1_000_000), timeout: 2 * time.Minute,
		measure: func(t *trial) (sample result.Sample, err error) {
			memory, err := t.fillNames()
			if err != nil {
				return sample, err
			}
			name := measure.OwnNames("job")
			if _, err := measure.Pairs(t.ctx, t.locker, 1, name, t.span/4, nil); err != nil {
				return sample, err
			}
			serverBefore, err := t.readServer()
			if err != nil {
				return sample, err
			}
			before := measure.ReadUsage()
			counts, err := measure.Pairs(t.ctx, t.locker, 1, name, t.span, nil)
			used := measure.ReadUsage().Sub(before)
			server, errRead := t.readServer()
			if pairs := counts[0]; pairs > 0 {
				sample.Values = costs(used, server.sub(serverBefore), pairs)
				sample.Values["rate"] = pairs / t.span.Seconds()
				if t.contender.Size >= 1000 { // A page or a block counts for less than that.
					sample.Values["memory"] = memory / float64(t.contender.Size)
				}
			}
			return sample, errors.Join(err, errRead)
		},
	}
}

// fillNames makes the contender's Size names held by others, and returns how much memory they take.
func (t *trial) fillNames() (memory float64, err error) {
	if t.pg == nil {
		// The value of each lock is as long as one of Holdfast, whichever library is measured.
		const fill = `for i = 1, ARGV[1] do redis.call("SET", ARGV[2] .. i, string.rep("v", 90), "EX", 3600) end`
		prefix := "other"
		if t.contender.Keys != nil {
			prefix = t.contender.Keys("other")[0]
		}
		before, err := t.readServer()
		if err != nil {
			return 0, err
		}
		t.redis[0].Do("EVAL", fill, "0", strconv.Itoa(t.contender.Size), prefix)
		after, err := t.readServer()
		return after.data - before.data, err
	}
	table := "plain"
	if t.contender.Role == lockers.Ours {
		table = pgstoreTable
	}
	conn, err := pgx.Connect(t.ctx, t.pg.URL("postgres"))
	if err != nil {
		return 0, err
	}
	defer conn.Close(t.ctx)
	for _, statement := range []string{
		"TRUNCATE " + table,
		fmt.Sprintf("INSERT INTO %s (lock_name, holder_id, acquired_at, expires_at) SELECT 'other/' || i, repeat('v', 22), "+
			"now(), now() + interval '1 hour' FROM generate_series(1, %d) AS i", table, t.contender.Size),
		"VACUUM ANALYZE " + table, // Otherwise autovacuum would come meanwhile.
		"CHECKPOINT",
	} {
		if _, err := conn.Exec(t.ctx, statement); err != nil {
			return 0, err
		}
	}
	return memory, conn.QueryRow(t.ctx, "SELECT pg_total_relation_size($1)::float8", table).Scan(&memory)
}

// pgstoreTable is the table of locks that createTables makes.
const pgstoreTable = "distributed_locks"

// growthWaiting measures hand-overs of one name while a number of processes wait for it.
func growthWaiting(store, group string, contenders []lockers.Contender) scenario {
	return scenario{
		name:  store + "-growth-waiting",
		group: group,
		title: "Many processes wait for one name",
		about: "Each process is a client of its own with one waiter. What a waiter costs while nothing happens (for 10 s); then " +
			"the lock is released, and each of them has it once, without work in between: the cost of a hand-over is that of all, " +
			"less what waiting costs in that time. A client that was not served did not get the free lock within 10 s. Polling " +
			"libraries are not here: they take up to an interval for each.",
		metrics: slices.Concat(
			[]result.Metric{{Key: "handover", Title: "one hand-over", Unit: result.Micros, Lower: true, Chart: true}},
			costMetrics(group, "a hand-over"),
			[]result.Metric{
				{Key: "idle", Title: "requests/s for a waiter", Unit: result.Rate, Lower: true},
				{Key: "idleCommands", Title: commandsOf(group) + "/s for a waiter", Unit: result.Rate, Lower: true},
				{Key: "idleWire", Title: "bytes/s for a waiter", Unit: result.Bytes, Lower: true},
				{Key: "idleServer", Title: "server CPU/s for a waiter", Unit: result.Micros, Lower: true},
				{Key: "idleClient", Title: "client CPU/s for a waiter", Unit: result.Micros, Lower: true},
				{Key: "idleWAL", Title: "written ahead/s for a waiter", Unit: result.Bytes, Lower: true},
				{Key: "memory", Title: "server memory for a waiter", Unit: result.Bytes, Lower: true},
				{Key: "connections", Title: "connections for a waiter", Unit: result.Count, Lower: true},
				{Key: "served", Title: "served", Unit: result.Fraction},
			}),
		contenders: contenders, ttl: time.Minute, timeout: 4 * time.Minute, workers: 1, perSize: true,
		measure: measureWaiting,
	}
}

func measureWaiting(t *trial) (sample result.Sample, err error) {
	holder, waiting := t.workers[0], t.workers[1:]
	clients := float64(len(waiting))
	if _, err := holder.Acquire("job"); err != nil {
		return sample, err
	}
	for _, w := range waiting {
		if err := w.StartWaiters("job", 1); err != nil {
			return sample, err
		}
	}
	if err := t.awaitConnections(); err != nil {
		return sample, err
	}

	const span = 10 * time.Second
	read := func() (measure.Usage, serverUsage, error) {
		client, err := measure.TotalUsage(waiting)
		server, errServer := t.readServer()
		return client, server, errors.Join(err, errServer)
	}
	began := time.Now() // Reading many workers takes time, too, and each is read after as long.
	client0, server0, err := read()
	if err != nil {
		return sample, err
	}
	threads := workersTime(waiting)
	time.Sleep(span)
	threads = workersTime(waiting) - threads
	seconds := time.Since(began).Seconds()
	client1, server1, err := read()
	if err != nil {
		return sample, err
	}
	idle := costs(client1.Sub(client0), server1.sub(server0), seconds*clients)

	released, err := holder.Release("job")
	if err != nil {
		return sample, err
	}
	served, last, waited, err := awaitAll(waiting, released)
	if err != nil {
		return sample, err
	}
	client2, err := measure.TotalUsage(served)
	if err != nil {
		return sample, err
	}
	server2, err := t.readServer()
	if err != nil {
		return sample, err
	}
	handOvers := float64(len(served))
	sample.Values = costs(client2.Sub(client1), server2.sub(server1), handOvers)
	for _, key := range []string{"commands", "server", "wal"} {
		sample.Values[key] *= handOvers / (handOvers + 1) // The last release is to nobody.
	}
	if len(served) < len(waiting) {
		waited += servedBound * time.Duration(len(waiting))
	}
	for key, perSecond := range idle {
		sample.Values[key] = max(0, sample.Values[key]-perSecond*waited.Seconds()/handOvers)
	}
	if len(served) < len(waiting) { // What the others have sent is not known.
		delete(sample.Values, "trips")
		delete(sample.Values, "wire")
	}
	sample.Values["handover"] = microseconds(last)[0] / handOvers
	sample.Values["idle"], sample.Values["idleWire"] = idle["trips"], idle["wire"]
	sample.Values["idleClient"] = threads / span.Seconds() / clients * 1e6
	sample.Values["idleCommands"] = idle["commands"]
	sample.Values["idleServer"], sample.Values["idleWAL"] = idle["server"], idle["wal"]
	sample.Values["memory"] = (server0.memory - t.empty.memory) / clients
	sample.Values["connections"] = (server0.connections - t.empty.connections) / clients
	if clients < 100 { // The server itself is most of it.
		delete(sample.Values, "memory")
		delete(sample.Values, "idleServer")
	}
	sample.Values["served"] = handOvers / clients
	return sample, nil
}

// awaitConnections returns when the server has had no new connection for 3 s: then each waiter has
// renewed its place, too, the first time of which takes more.
func (t *trial) awaitConnections() error {
	last := -1.0
	for quiet := 0; quiet < 3; quiet++ {
		now, err := t.connections()
		if err != nil {
			return err
		}
		if now != last {
			last, quiet = now, 0
		}
		select {
		case <-time.After(time.Second):
		case <-t.ctx.Done():
			return t.ctx.Err()
		}
	}
	return nil
}

// workersTime returns the CPU time of workers in seconds. Unlike measure.TotalUsage it takes none.
func workersTime(workers []*measure.Worker) (seconds float64) {
	for _, w := range workers {
		seconds += threadTime(w.PID())
	}
	return seconds
}

// servedBound is how long a lock may be free before the measurement gives up the waiters.
const servedBound = 10 * time.Second

// awaitAll waits until each of the workers has had the lock. It returns those that had it, the time
// of the last one, and the sum of their waits since a time. If no worker gets the lock for
// servedBound, awaitAll kills the rest.
func awaitAll(waiting []*measure.Worker, since time.Duration) (
	served []*measure.Worker, last, waited time.Duration, err error,
) {
	type acquisition struct {
		worker *measure.Worker
		at     time.Duration
		err    error
	}
	results := make(chan acquisition, len(waiting))
	for _, w := range waiting {
		go func() {
			at, err := w.AwaitWaiters()
			results <- acquisition{w, at, err}
		}()
	}
	for len(served) < len(waiting) {
		select {
		case r := <-results:
			if r.err != nil {
				return nil, 0, 0, r.err
			}
			served, last, waited = append(served, r.worker), max(last, r.at-since), waited+r.at-since
		case <-time.After(servedBound):
			for _, w := range waiting {
				if !slices.Contains(served, w) {
					_ = w.Kill() // Its error is that of a process that has ended.
				}
			}
			return served, last, waited, nil
		}
	}
	return served, last, waited, nil
}

// slowHandOver measures hand-overs between two processes where a round trip takes 10 ms more.
func slowHandOver(store, group string) scenario {
	const added, perRound = 10 * time.Millisecond, 12
	return scenario{
		name:  store + "-growth-handover-slow",
		group: group,
		title: "Hand-over between two processes, with 10 ms more for each round trip",
		about: "As the hand-over above, through a proxy that delays each direction by 5 ms. A round trip is the median time of a " +
			"plain command through that proxy.",
		metrics: []result.Metric{
			{Key: "trips", Title: "median, in round trips", Unit: result.Count, Lower: true, Quantile: 0.5, Chart: true},
			{Key: "trips", Title: "99th percentile, in round trips", Unit: result.Count, Lower: true, Quantile: 0.99},
			{Key: "trip", Title: "a round trip", Unit: result.Micros, Lower: true},
		},
		workers: 2, delay: added, timeout: time.Minute,
		measure: func(t *trial) (sample result.Sample, err error) {
			trip, err := t.roundTrip()
			if err != nil {
				return sample, err
			}
			idle, err := measure.HandOvers(t.workers[0], t.workers[1], "job", perRound, t.timeout)
			all := microseconds(idle...)
			for i := range all {
				all[i] /= trip
			}
			return result.Sample{Series: map[string][]float64{"trips": all}, Values: map[string]float64{"trip": trip}}, err
		},
	}
}

// roundTrip returns the median time of a plain command, in microseconds.
func (t *trial) roundTrip() (micros float64, err error) {
	var command func() error
	if address := t.options().Servers[0]; t.pg == nil {
		client := redis.NewClient(&redis.Options{Addr: address})
		defer client.Close()
		command = func() error { return client.Ping(t.ctx).Err() }
	} else {
		conn, err := pgx.Connect(t.ctx, address)
		if err != nil {
			return 0, err
		}
		defer conn.Close(context.Background())
		command = func() error { _, err := conn.Exec(t.ctx, ""); return err }
	}
	var all []float64
	for range 21 {
		began := time.Now()
		if err := command(); err != nil {
			return 0, err
		}
		all = append(all, microseconds(time.Since(began))...)
	}
	return measure.Quantile(all, 0.5), nil
}
