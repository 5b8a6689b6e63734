//go:build unix

package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// startOwn starts the test binary again as a peer that uses this package: a
// process that runs only the test t, as a child; see obey.
func startOwn(t *testing.T, name, addr string) *peer {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), "REDISSTORE_PEER="+addr, "GORACE=atexit_sleep_ms=0")
	return startPeer(t, name, cmd)
}

// obey is what the child does, if this process is one: it carries out commands
// until its input ends, and reports true.
func obey(t *testing.T, commands func(locks *holdfast.Client, words []string) string) bool {
	addr := os.Getenv("REDISSTORE_PEER")
	if addr == "" {
		return false
	}
	locks := connect(t, addr, nil)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(commands(locks, strings.Fields(lines.Text())))
	}
	return true
}

// A crowd of processes, each with many goroutines, hands one lock around. Nobody
// starves, and what a hand-over costs the server is known.
func TestCrowdOfProcesses(t *testing.T) {
	if obey(t, crowdMember) {
		return
	}
	t.Parallel()
	processes, goroutines, span := 4, 4, time.Second
	if os.Getenv("HOLDFAST_ROUNDS") != "" {
		processes, goroutines, span = 16, 16, 10*time.Second
	}
	server := servers.StartRedis(t)
	peers := make([]*peer, processes)
	for i := range peers {
		peers[i] = startOwn(t, fmt.Sprint("process ", i), server.Addr)
		peers[i].must("0s", "crowd", "0s", "1") // It is there.
	}
	server.Do("CONFIG", "RESETSTAT")
	tokens := map[int64]int{} // whose they are
	shares := make([]float64, processes)
	var longest time.Duration
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, p := range peers {
		group.Go(func() {
			answer := strings.Fields(p.do("crowd", span.String(), fmt.Sprint(goroutines)))
			mu.Lock()
			defer mu.Unlock()
			wait, err := time.ParseDuration(strings.Join(answer[:min(1, len(answer))], ""))
			if err != nil {
				t.Errorf("%s answered %q", p.name, answer)
				return
			}
			longest = max(longest, wait)
			for _, word := range answer[1:] {
				token, _ := strconv.ParseInt(word, 10, 64) // It is no token then, and not the only one.
				if other, taken := tokens[token]; taken {
					t.Errorf("processes %d and %d have the same token %q", other, i, word)
				}
				tokens[token] = i
			}
			shares[i] = float64(len(answer) - 1)
		})
	}
	group.Wait()
	total, jain := fairness(shares)
	t.Logf("%d processes of %d goroutines in %v: %.0f hand-overs/s, %.0f of them to another process; "+
		"Jain's index of the processes %.3f, shares from %.0f to %.0f, longest wait %v",
		processes, goroutines, span, total/span.Seconds(), float64(moves(tokens))/span.Seconds(),
		jain, slices.Min(shares), slices.Max(shares), longest)
	t.Logf("commands for each hand-over: %s", commandsEach(server, total))
	if slices.Min(shares) == 0 {
		t.Errorf("of %d processes one never had the lock: %v", processes, shares)
	}
}

// moves counts the hand-overs from one process to another, given whose each
// token was.
func moves(tokens map[int64]int) (n int) {
	last := -1
	for _, token := range slices.Sorted(maps.Keys(tokens)) {
		if tokens[token] != last {
			n++
		}
		last = tokens[token]
	}
	return n
}

// crowdMember has goroutines take a lock in turns for a while, and answers what
// the longest wait was, and the tokens.
func crowdMember(locks *holdfast.Client, words []string) string {
	span, err := time.ParseDuration(words[1])
	if err != nil {
		return err.Error()
	}
	goroutines, err := strconv.Atoi(words[2])
	if err != nil {
		return err.Error()
	}
	var longest time.Duration
	var tokens strings.Builder
	var mu sync.Mutex
	var group sync.WaitGroup
	end := time.Now().Add(span)
	for range goroutines {
		group.Go(func() {
			for time.Now().Before(end) {
				asked := time.Now()
				lock, err := locks.Acquire(context.Background(), "crowd", nil)
				if err != nil {
					return
				}
				mu.Lock()
				fmt.Fprintf(&tokens, " %d", lock.Token())
				longest = max(longest, time.Since(asked))
				mu.Unlock()
				if lock.Release() != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return longest.Round(time.Millisecond).String() + tokens.String()
}

// fairness returns the sum of shares and Jain's index of them: 1 if all are
// equal, 1/n if one has all.
func fairness(shares []float64) (sum, jain float64) {
	squares := 0.0
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	return sum, sum * sum / (squares * float64(len(shares)))
}

// commandsEach says how many commands of each kind there were for each of n
// hand-overs; those that scripts make are counted as well.
func commandsEach(server *servers.Redis, n float64) string {
	var parts []string
	for line := range strings.Lines(server.Do("INFO", "commandstats")) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		var calls float64
		if _, err := fmt.Sscanf(rest, "%f,", &calls); err == nil && calls >= n/2 {
			parts = append(parts, fmt.Sprintf("%s %.1f", name, calls/n))
		}
	}
	return strings.Join(parts, ", ")
}
