//go:build unix

package main

import (
	"slices"

	"github.com/holdfast-go/holdfast/bench/internal/page"
)

// questions are those that the page docs/benchmarks.md answers.
var questions = []page.Question{
	{
		Chart: "latency",
		Title: "How long does one lock take?",
		Text: "The time of one acquisition and release by a goroutine that is alone. \"Not cancelled\" " +
			"is Holdfast with a context that cannot be canceled. On Redis a grant of Holdfast is a script, which creates the fencing token in the same step: " +
			"\"raw with a token\" shows what that costs. Where the system puts client and server " +
			"decides more here than any library: hence the figures with both pinned to one core, " +
			"and to two, where they were measured. A raw upsert is durable when it returns, as is " +
			"\"Holdfast, table, durable\"; the ratio in brackets is to \"Holdfast, table\", which is not. " +
			"On etcd every acquisition and every release waits for the disks of a majority: of one " +
			"member, or of three, which share a disk here.",
		Columns: []page.Column{
			{Title: "a pair", Metric: "pairs/s", PerPair: true, Scenarios: []string{
				"redis-uncontended-1", "quorum-uncontended-1", "postgres-table-1", "postgres-advisory-1", "etcd-1-uncontended-1"}},
			{Title: "etcd, three members", Metric: "pairs/s", PerPair: true, Scenarios: []string{"etcd-3-uncontended-1"}},
			{Title: "on one core", Metric: "pairs/s", PerPair: true, Scenarios: []string{"redis-uncontended-1-one-core"}},
			{Title: "on two cores", Metric: "pairs/s", PerPair: true, Scenarios: []string{"redis-uncontended-1-two-cores"}},
		},
	},
	{
		Chart: "throughput",
		Title: "How many a second?",
		Text: "Pairs of acquire and release in a second: of 64 goroutines with a name each, and of " +
			"16 goroutines, or 4 processes with 4 each, on one name. On one name the queue " +
			"decides. The goroutines of a process pass a lock of Holdfast on among themselves for " +
			"up to 10 ms, in the order in which they came; then Redis, the table and etcd admit the " +
			"first in line over all processes. The fairness is Jain's index (1: all had the lock " +
			"equally often; 0.06: one had it always). The longest wait is that of one acquisition, by " +
			"the four processes. A rival that is faster mostly gives the lock to the goroutine that " +
			"tries just then.",
		Columns: []page.Column{
			{Title: "64, own names", Metric: "pairs/s", Scenarios: []string{
				"redis-uncontended-64", "quorum-uncontended-64", "postgres-table-64", "postgres-advisory-64", "etcd-1-uncontended-64"}},
			{Title: "etcd, three members", Metric: "pairs/s", Scenarios: []string{"etcd-3-uncontended-64"}},
			{Title: "16, one name", Metric: "pairs/s", Scenarios: []string{"redis-contended-goroutines", "postgres-contended"}},
			{Title: "fairness", Metric: "fairness", NoRatio: true, Scenarios: []string{"redis-contended-goroutines", "postgres-contended"}},
			{Title: "4 processes, one name", Metric: "pairs/s", Scenarios: []string{"redis-contended-processes"}},
			{Title: "longest wait", Metric: "longest wait", Scenarios: []string{"redis-contended-processes"}},
		},
	},
	{
		Chart: "handover",
		Title: "How soon is it handed on?",
		Text: "From the call that releases in one process until another process, which waits, has " +
			"the lock; and the time until 50 waiters of five processes have had it in turn. A " +
			"waiter that polls waits for half of its interval. A waiter of go-pglock is a " +
			"statement that the server answers when the lock is free, on a connection of its own; " +
			"Holdfast has one connection for all.",
		Columns: []page.Column{
			{Title: "median", Metric: "median", Scenarios: []string{"redis-handover", "postgres-handover", "etcd-1-handover"}},
			{Title: "99th percentile", Metric: "99th percentile", Scenarios: []string{"redis-handover", "postgres-handover", "etcd-1-handover"}},
			{Title: "median, etcd, three members", Metric: "median", Scenarios: []string{"etcd-3-handover"}},
			{Title: "all 50 served in", Metric: "all 50 served in", Scenarios: []string{"redis-waiters"}},
		},
	},
	{
		Chart: "crash",
		Title: "What after a crash?",
		Text: "The holder is killed while another process waits: how long the lock is idle after " +
			"its TTL. With 300,000 other keys Redis takes its time to notice that a key has " +
			"expired, and waiters that rely on its notification wait (5 s is where the " +
			"measurement ends). The last column is an acquisition from a majority of five servers " +
			"of which one hangs.",
		Columns: []page.Column{
			{Title: "median", Metric: "median", Scenarios: []string{"redis-crash"}},
			{Title: "longest", Metric: "longest", Scenarios: []string{"redis-crash"}},
			{Title: "with other keys", Metric: "median", Scenarios: []string{"redis-crash-busy"}},
			{Title: "one of five hung", Metric: "acquire", Scenarios: []string{"quorum-hung"}},
		},
	},
	{
		Chart: "holding",
		Title: "What does holding cost?",
		Text: "CPU and memory for 10,000 locks that one process holds and renews (TTL 5 s; a " +
			"library that does not renew has no figure), and the requests in a second of each of " +
			"50 waiters while the lock is held. On three members of etcd it is 1,000 locks (TTL 10 s), and " +
			"the CPU is that of all members; a session keeps all of its locks alive with one message, " +
			"and none of them ends by itself.",
		Columns: []page.Column{
			{Title: "client CPU", Metric: "client CPU", Scenarios: []string{"redis-held", "etcd-held"}},
			{Title: "server CPU", Metric: "server CPU", Scenarios: []string{"redis-held", "etcd-held"}},
			{Title: "memory for a lock", Metric: "memory for a lock", Scenarios: []string{"redis-held", "etcd-held"}},
			{Title: "keep-alives/s", Metric: "keep-alive messages/s", Scenarios: []string{"etcd-held"}},
			{Title: "requests/s for a waiter", Metric: "requests/s for a waiter", Scenarios: []string{"redis-waiters"}},
		},
	},
	{
		Chart: "shared",
		Title: "What do slots and readers cost?",
		Text: "Pairs of acquire and release in a second, on Redis: of 64 goroutines and a semaphore of 10, and of 16 readers of a name that " +
			"1,000 others read, beside 16 holders of names of their own. The counter has no lease: the slot of a process that dies is lost.",
		Columns: []page.Column{
			{Title: "pairs/s", Metric: "pairs/s", Scenarios: []string{"redis-semaphore", "redis-readers"}},
			{Title: "fairness", Metric: "fairness", NoRatio: true, Scenarios: []string{"redis-semaphore"}},
			{Title: "commands for a pair", Metric: "commands run for a pair", NoRatio: true, Scenarios: []string{"redis-semaphore"}},
			{Title: "server CPU for a pair", Metric: "server CPU for a pair", Scenarios: []string{"redis-semaphore"}},
			{Title: "server CPU, readers", Metric: "server CPU", Scenarios: []string{"redis-readers"}},
		},
	},
	{
		Chart: "election",
		Title: "Do two lead at once?",
		Text: "Three candidates of each library stand on one cluster of etcd while its leader is killed and stopped, a member is " +
			"restarted, and the processes of candidates are stopped and cut off for longer than the TTL of 5 s. Overlaps are pairs of terms whose " +
			"contexts were alive at one moment; a term falls if its token is not greater than that of each term before it. Holdfast ends " +
			"the context before the lease can end, and is later to have a new leader: its leases last up to 4 s longer than the TTL.",
		Columns: []page.Column{
			{Title: "overlaps", Metric: "overlaps of terms", NoRatio: true, Scenarios: []string{"etcd-election"}},
			{Title: "longest overlap", Metric: "longest overlap", NoRatio: true, Scenarios: []string{"etcd-election"}},
			{Title: "time without a leader", Metric: "time without a leader", Scenarios: []string{"etcd-election"}},
			{Title: "terms that fall", Metric: "terms that fall", NoRatio: true, Scenarios: []string{"etcd-election"}},
			{Title: "terms", Metric: "terms", NoRatio: true, Scenarios: []string{"etcd-election"}},
		},
	},
	{
		Chart: "growth-held",
		Title: "What grows with the locks that are held?",
		Text: "An acquisition and release by one goroutine while others hold 1, 1,000 and a million names, on Redis and in the " +
			"PostgreSQL table. In brackets, for Holdfast: how many times the time with one name that is; for the others, how many " +
			"times better Holdfast is beside as many names. Requests are what a client writes to its connections, commands those that " +
			"Redis runs, with those in scripts, and transactions those of PostgreSQL that write, with the subtransactions of functions. The " +
			"values of others in Redis are as long as those of Holdfast for all.",
		Columns: []page.Column{
			{Title: "a pair", Metric: "pairs/s", PerPair: true, Scenarios: heldScenarios},
			{Title: "requests", Metric: "requests for a pair", NoRatio: true, Scenarios: heldScenarios},
			{Title: "commands", Metric: "commands run for a pair", NoRatio: true, Scenarios: heldScenarios},
			{Title: "transactions", Metric: "transactions for a pair", NoRatio: true, Scenarios: heldScenarios},
			{Title: "bytes", Metric: "bytes for a pair", NoRatio: true, Scenarios: heldScenarios},
			{Title: "written ahead", Metric: "written ahead for a pair", NoRatio: true, Scenarios: heldScenarios},
			{Title: "memory or disk for a name", Metric: "memory for a held name", NoRatio: true, Scenarios: heldScenarios},
		},
	},
	{
		Chart: "growth-waiting",
		Title: "What does a hand-over cost with many clients that wait?",
		Text: "1 to 1,000 processes wait for one name, each a client of its own, all on this machine, with the server. For the PostgreSQL " +
			"table there are 300 at most, since 1,000 ran out of connections and memory, and nothing between was tried: there " +
			"are two to five processes more for each, those of its connections. Then " +
			"each of them has the lock once. In brackets, for Holdfast: how many times " +
			"the cost with 100 processes that is. What waiting itself costs in that time is taken off. rueidislock was run with up to " +
			"100: in many rounds some of its clients go on waiting for a lock that is free (served: the share that had it within 10 s " +
			"of the one before). On PostgreSQL no trend shows; why few clients take longer here than two processes that " +
			"pass a lock on again and again (above) was not examined: each client is new, and has the lock once.",
		Columns: []page.Column{
			{Title: "a hand-over", Metric: "one hand-over", Scenarios: waitingScenarios},
			{Title: "server CPU", Metric: "server CPU for a hand-over", Scenarios: waitingScenarios},
			{Title: "requests", Metric: "requests for a hand-over", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "commands", Metric: "commands run for a hand-over", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "transactions", Metric: "transactions for a hand-over", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "bytes", Metric: "bytes for a hand-over", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "written ahead", Metric: "written ahead for a hand-over", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "served", Metric: "served", NoRatio: true, Scenarios: waitingScenarios},
		},
	},
	{
		Chart: "growth-idle",
		Title: "What does each client cost while it waits?",
		Text: "The same processes for 10 s in which nothing happens: for each of them, in a second. The memory is that of the server, with " +
			"the connections; of PostgreSQL, that of all of its processes. In brackets, for Holdfast: how many times the cost with 100 " +
			"processes that is.",
		Columns: []page.Column{
			{Title: "client CPU", Metric: "client CPU/s for a waiter", Scenarios: waitingScenarios},
			{Title: "server CPU", Metric: "server CPU/s for a waiter", Scenarios: waitingScenarios},
			{Title: "requests", Metric: "requests/s for a waiter", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "bytes", Metric: "bytes/s for a waiter", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "written ahead", Metric: "written ahead/s for a waiter", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "memory", Metric: "server memory for a waiter", NoRatio: true, Scenarios: waitingScenarios},
			{Title: "connections", Metric: "connections for a waiter", NoRatio: true, Scenarios: waitingScenarios},
		},
	},
	{
		Chart: "growth-slow",
		Title: "What does a hand-over cost on a slow network?",
		Text: "From the call that releases in one process until another has the lock, where each round trip takes 10 ms more, in round " +
			"trips. One is the least: the release, and the notice.",
		Columns: []page.Column{
			{Title: "median", Metric: "median, in round trips", Scenarios: slowScenarios},
			{Title: "99th percentile", Metric: "99th percentile, in round trips", Scenarios: slowScenarios},
		},
	},
	{
		Chart: "growth-costs",
		Title: "What does each step cost?",
		Text: "The cost model: what each step takes, measured by itself, and below it what follows from that for the runs above, beside what " +
			"they took. A notice is no request. A renewal of many locks is one request for up to 1,024. Waiting is the renewal of a place " +
			"every 1.67 s, and on Redis a ping of the connection for notices every 5 s; pgxpool adds a ping to each request on a connection " +
			"that was idle for a second. Places are in an unlogged table: of them only the commits are written ahead. To hand over is the " +
			"release and what the next client does until it has the lock: nothing on Redis, a claim in PostgreSQL. The memory of " +
			"PostgreSQL is that on disk.",
		Columns: slices.Concat(costColumns("Redis", "commands run", "redis-growth-costs"),
			costColumns("PostgreSQL", "transactions", "postgres-growth-costs")),
		Checks: slices.Concat(modelChecks("Redis", "redis", "Holdfast", "1,000", "commands run"),
			modelChecks("PostgreSQL", "postgres", "Holdfast, table", "300", "transactions")),
	},
}

var (
	heldScenarios    = []string{"redis-growth-held", "postgres-growth-held"}
	waitingScenarios = []string{"redis-growth-waiting", "postgres-growth-waiting", "file-growth-waiting"}
	slowScenarios    = []string{"redis-growth-handover-slow", "postgres-growth-handover-slow"}
)

func costColumns(server, commands, scenario string) []page.Column {
	columns := []page.Column{
		{Title: server + ": bytes", Metric: "bytes"}, {Title: "requests", Metric: "requests"}, {Title: commands, Metric: commands},
		{Title: "written ahead", Metric: "written ahead"}, {Title: "memory", Metric: "server memory"},
	}
	if scenario == "redis-growth-costs" {
		columns = slices.Delete(columns, 3, 4)
	}
	for i := range columns {
		columns[i].Scenarios = []string{scenario}
	}
	return columns
}

// modelChecks compares the scenarios of growth with what the steps cost.
func modelChecks(server, store, contender, waiting, commands string) (checks []page.Check) {
	for _, m := range []struct{ cost, metric string }{
		{"requests", "requests"}, {commands, commands}, {"bytes", "bytes"}, {"written ahead", "written ahead"},
	} {
		check := func(title, scenario, contender, metric string, steps ...page.Step) {
			checks = append(checks, page.Check{
				Title: server + ": " + m.cost + ", " + title, Steps: steps,
				Costs:  page.Figure{Scenario: store + "-growth-costs", Metric: m.cost},
				Actual: page.Figure{Scenario: store + scenario, Contender: contender, Metric: metric},
			})
		}
		check("a pair beside a million names", "-growth-held", contender+", 1,000,000 held", m.metric+" for a pair",
			page.Step{Times: 1, Contender: stepAcquire}, page.Step{Times: 1, Contender: stepRelease})
		check("a hand-over with "+waiting+" waiting", "-growth-waiting", contender+", "+waiting+" waiting", m.metric+" for a hand-over",
			page.Step{Times: 1, Contender: stepHandOver})
		check("a second of waiting, of "+waiting, "-growth-waiting", contender+", "+waiting+" waiting", m.metric+"/s for a waiter",
			page.Step{Times: 1, Contender: stepWait})
	}
	return checks
}
