//go:build unix

package main

import "github.com/holdfast-go/holdfast/bench/internal/page"

// questions are those that the page docs/benchmarks.md answers.
var questions = []page.Question{
	{
		Chart: "latency",
		Title: "How long does one lock take?",
		Text: "The time of one acquisition and release by a goroutine that is alone. On Redis a " +
			"grant of Holdfast is a script, which creates the fencing token in the same step: " +
			"\"raw with a token\" shows what that costs. Where the system puts client and server " +
			"decides more here than any library: hence the figures with both pinned to one core, " +
			"and to two, where they were measured. A raw upsert is durable when it returns, as is " +
			"\"Holdfast, table, durable\"; the ratio in brackets is to \"Holdfast, table\", which is not.",
		Columns: []page.Column{
			{Title: "a pair", Metric: "pairs/s", PerPair: true, Scenarios: []string{
				"redis-uncontended-1", "quorum-uncontended-1", "postgres-table-1", "postgres-advisory-1"}},
			{Title: "on one core", Metric: "pairs/s", PerPair: true, Scenarios: []string{"redis-uncontended-1-one-core"}},
			{Title: "on two cores", Metric: "pairs/s", PerPair: true, Scenarios: []string{"redis-uncontended-1-two-cores"}},
		},
	},
	{
		Chart: "throughput",
		Title: "How many a second?",
		Text: "Pairs of acquire and release in a second: of 64 goroutines with a name each, and of " +
			"16 goroutines, or 4 processes with 4 each, on one name. On one name the queue " +
			"decides. Holdfast wakes the waiter that has waited longest in each process; the " +
			"fairness is Jain's index (1: all had the lock equally often; 0.06: one had it " +
			"always). A rival that is faster mostly gives the lock to the goroutine that tries " +
			"just then.",
		Columns: []page.Column{
			{Title: "64, own names", Metric: "pairs/s", Scenarios: []string{
				"redis-uncontended-64", "quorum-uncontended-64", "postgres-table-64", "postgres-advisory-64"}},
			{Title: "16, one name", Metric: "pairs/s", Scenarios: []string{"redis-contended-goroutines", "postgres-contended"}},
			{Title: "fairness", Metric: "fairness", NoRatio: true, Scenarios: []string{"redis-contended-goroutines", "postgres-contended"}},
			{Title: "4 processes, one name", Metric: "pairs/s", Scenarios: []string{"redis-contended-processes"}},
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
			{Title: "median", Metric: "median", Scenarios: []string{"redis-handover", "postgres-handover"}},
			{Title: "99th percentile", Metric: "99th percentile", Scenarios: []string{"redis-handover", "postgres-handover"}},
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
			"50 waiters while the lock is held.",
		Columns: []page.Column{
			{Title: "client CPU", Metric: "client CPU", Scenarios: []string{"redis-held"}},
			{Title: "server CPU", Metric: "server CPU", Scenarios: []string{"redis-held"}},
			{Title: "memory for a lock", Metric: "memory for a lock", Scenarios: []string{"redis-held"}},
			{Title: "requests/s for a waiter", Metric: "requests/s for a waiter", Scenarios: []string{"redis-waiters"}},
		},
	},
}
