//go:build unix

package main

import (
	"bufio"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// A redisUsage is what a Redis server has done and used since it was started.
type redisUsage struct {
	commands float64 // with the few that read these figures, and those that scripts run
	in, out  float64 // bytes from and to clients
	cpu      float64 // in seconds
}

func readRedis(server *servers.Redis) redisUsage { return redisUsageOf(server.Do("INFO")) }

func redisUsageOf(info string) redisUsage {
	return redisUsage{
		commands: infoNumber(info, "total_commands_processed"),
		in:       infoNumber(info, "total_net_input_bytes"),
		out:      infoNumber(info, "total_net_output_bytes"),
		cpu:      infoNumber(info, "used_cpu_sys") + infoNumber(info, "used_cpu_user"),
	}
}

// since returns the usage between an earlier reading and u.
func (u redisUsage) since(before redisUsage) redisUsage {
	return redisUsage{u.commands - before.commands, u.in - before.in, u.out - before.out, u.cpu - before.cpu}
}

// infoNumber returns a number in the reply to INFO.
func infoNumber(info, name string) float64 {
	n, err := strconv.ParseFloat(infoField(info, name), 64)
	if err != nil {
		panic(err) // Every Redis reports the fields used here.
	}
	return n
}

// infoField returns a field of the reply to INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A serverUsage is what the first server of a scenario has done and used since it was started.
type serverUsage struct {
	// commands are those of Redis, with those that scripts run. Of PostgreSQL they are the
	// transactions that write, with subtransactions.
	commands float64

	wal    float64 // bytes of the write-ahead log
	cpu    float64 // in seconds
	memory float64 // in bytes, of all processes of the server

	// data is in bytes. Of Redis it is the memory of the data, of PostgreSQL the tables of Holdfast.
	data float64

	connections float64
}

func (r *scenarioRun) readServer() (u serverUsage, err error) {
	if r.pg == nil && len(r.redis) == 0 {
		return u, nil
	}
	if r.pg == nil {
		r.reads++
		info := r.redis[0].Do("INFO")
		used := redisUsageOf(info)
		u.commands, u.cpu = used.commands-r.reads, used.cpu
		u.memory, u.data = infoNumber(info, "used_memory"), infoNumber(info, "used_memory_dataset")
		u.connections = infoNumber(info, "connected_clients")
		return u, nil
	}
	if u.connections, err = r.connections(); err != nil {
		return u, err
	}
	u.cpu, u.memory = processUsage(r.pg.PID())
	for query, value := range map[string]*float64{
		"SELECT pg_snapshot_xmax(pg_current_snapshot())::text::float8": &u.commands,
		"SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8": &u.wal,
		"SELECT sum(pg_total_relation_size(oid))::float8 FROM pg_class WHERE relkind = 'r' AND relnamespace = " +
			"(SELECT relnamespace FROM pg_class WHERE oid = '" + pgstoreTable + "'::regclass)": &u.data,
	} {
		if err := r.queryValue(query, value); err != nil {
			return u, err
		}
	}
	return u, nil
}

// connections returns how many clients are connected to the first server, 0 if there is none.
func (r *scenarioRun) connections() (n float64, err error) {
	switch {
	case r.pg != nil:
		err = r.queryValue("SELECT count(*)::float8 FROM pg_stat_activity WHERE backend_type = 'client backend'", &n)
	case len(r.redis) > 0:
		r.reads++
		n = infoNumber(r.redis[0].Do("INFO"), "connected_clients")
	}
	return n, err
}

func (u serverUsage) sub(before serverUsage) serverUsage {
	return serverUsage{
		u.commands - before.commands, u.wal - before.wal, u.cpu - before.cpu,
		u.memory - before.memory, u.data - before.data, u.connections - before.connections,
	}
}

// countRequests counts the requests that clients send to a Redis server within the span. The
// figures of INFO cannot be used for this: they include the commands that scripts run.
func countRequests(addr string, span time.Duration) (count int, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	lines := bufio.NewReader(conn)
	if _, err := lines.ReadString('\n'); err != nil { // The reply to MONITOR.
		return 0, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(span)); err != nil {
		return 0, err
	}
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		if !strings.Contains(line, " lua] ") {
			count++
		}
	}
}
