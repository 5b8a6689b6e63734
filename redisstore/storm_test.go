//go:build unix

package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A monitor counts the commands that clients send to a server; those of scripts
// are not among them.
type monitor struct {
	mu       sync.Mutex
	commands map[string]int
}

func startMonitor(t *testing.T, server *servers.Redis) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // It has served its purpose.
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %q, %v", lines.Text(), lines.Err())
	}
	m := &monitor{commands: map[string]int{}}
	go func() {
		for lines.Scan() { // as in: +1700000000.123456 [0 127.0.0.1:1234] "get" "lock:name"
			_, rest, _ := strings.Cut(lines.Text(), "[")
			source, command, _ := strings.Cut(rest, "] ")
			if strings.HasSuffix(source, "lua") {
				continue
			}
			command, _, _ = strings.Cut(command, " ")
			m.mu.Lock()
			m.commands[strings.ToLower(strings.Trim(command, `"`))]++
			m.mu.Unlock()
		}
	}()
	return m
}

// during counts the commands of a span of time.
func (m *monitor) during(span time.Duration) (commands map[string]int, took time.Duration) {
	m.mu.Lock()
	m.commands = map[string]int{}
	m.mu.Unlock()
	began := time.Now()
	<-time.After(span)
	m.mu.Lock()
	defer m.mu.Unlock()
	commands, m.commands = m.commands, map[string]int{}
	return commands, time.Since(began)
}

// known makes the script of renewals known to the server: not knowing it costs a
// command more.
func known(t *testing.T, lock *holdfast.Lock) {
	t.Helper()
	if err := lock.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// A lock that is held and not used costs three renewals in each TTL, and nothing
// else.
func TestIdleHold(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	locks := connect(t, server.Addr, nil)
	const ttl = 600 * time.Millisecond
	lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	known(t, lock)
	commands, took := startMonitor(t, server).during(3 * time.Second)
	renewals := commands["evalsha"]
	delete(commands, "evalsha")
	if most := int(4*took/ttl) + 1; renewals == 0 || renewals > most || len(commands) > 0 {
		t.Errorf("a held lock took %d renewals in %v, want between 1 and %d, and the commands %v, want none", renewals, took, most, commands)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// A process that waits renews its place, less than once a second, however many of its goroutines
// wait, and whatever the holder does. It tests its connection for notices as well.
func TestWaitersAreIdle(t *testing.T) {
	t.Parallel()
	const waiters = 50
	span, renewals := 3*time.Second, 5
	if os.Getenv("HOLDFAST_ROUNDS") != "" {
		span = 35 * time.Second
	}
	for what, processes := range map[string]int{"of one process": 1, "of processes all": waiters} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			lock, err := connect(t, server.Addr, nil).Acquire(t.Context(), "name", nil)
			if err != nil {
				t.Fatal(err)
			}
			known(t, lock)
			before := scripts(server)
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer cancel()
			for range processes {
				locks := connect(t, server.Addr, nil)
				for range waiters / processes {
					group.Go(func() {
						if _, err := locks.Acquire(ctx, "name", nil); ctx.Err() == nil {
							t.Errorf("Acquire of a held lock: %v", err)
						}
					})
				}
			}
			// Each tries once more when it receives notices.
			eventually(t, "waiters", func() bool { return scripts(server) >= before+2*processes })

			m := startMonitor(t, server)
			go func() {
				for i := range renewals {
					if err := lock.Extend(ctx, time.Duration(i+2)*time.Minute); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			}()
			commands, took := m.during(span)
			pings, scripts := commands["ping"], commands["evalsha"]-renewals
			delete(commands, "ping")
			delete(commands, "evalsha")
			each := float64(scripts) / float64(processes) / took.Seconds()
			t.Logf("%d waiters of %d processes, %d renewals, %v: %d PINGs, %.3f scripts/s for each process", waiters, processes, renewals, took, pings, each)
			if most := (int(took/(5*time.Second)) + 1) * processes; pings > most || each > 1 || len(commands) > 0 {
				t.Errorf("%d PINGs, want %d at most; %.3f scripts/s for each process, want 1 at most; and %v, want none", pings, most, each, commands)
			}
		})
	}
}

// scripts counts the scripts that a server has run.
func scripts(server *servers.Redis) int {
	for line := range strings.Lines(server.Do("INFO", "commandstats")) {
		var n int
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &n); err == nil {
			return n
		}
	}
	return 0
}
