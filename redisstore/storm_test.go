//go:build unix

package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
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

// Waiters cost next to nothing beyond what the holder's renewals cause: that is a
// GET for each process that waits.
func TestWaitersAreIdle(t *testing.T) {
	t.Parallel()
	const waiters = 50
	for what, c := range map[string]struct {
		processes int
		backoff   holdfast.Backoff
	}{
		"of one process":   {1, holdfast.Backoff{}},
		"of processes all": {waiters, holdfast.Backoff{Watched: time.Minute}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			lock, err := connect(t, server.Addr, nil).Acquire(t.Context(), "name", nil)
			if err != nil {
				t.Fatal(err)
			}
			known(t, lock)
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer cancel()
			for range c.processes {
				locks := connect(t, server.Addr, &holdfast.Config{Backoff: c.backoff})
				for range waiters / c.processes {
					group.Go(func() {
						if _, err := locks.Acquire(ctx, "name", nil); ctx.Err() == nil {
							t.Errorf("Acquire of a held lock: %v", err)
						}
					})
				}
			}
			tracked := fmt.Sprintf("tracking_total_items:%d\r", c.processes)
			eventually(t, "waiters", func() bool { return strings.Contains(server.Do("INFO", "stats"), tracked) })
			m := startMonitor(t, server)
			m.during(500 * time.Millisecond) // Each tries once more when its watch is in force.

			const renewals = 5
			go func() {
				for i := range renewals {
					if err := lock.Extend(ctx, time.Duration(i+2)*time.Minute); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			}()
			commands, took := m.during(3 * time.Second)
			gets, scripts := commands["get"], commands["evalsha"]-renewals
			delete(commands, "get")
			delete(commands, "evalsha")
			each := float64(scripts) / waiters / took.Seconds()
			t.Logf("%d waiters, %d renewals, %v: %d GETs, %d attempts: %.3f commands/s each beyond the renewals", waiters, renewals, took, gets, scripts, each)
			if gets > renewals*c.processes || each > 0.1 || len(commands) > 0 {
				t.Errorf("%d GETs, want %d at most; %.3f commands/s each, want 0.1 at most; and %v, want none",
					gets, renewals*c.processes, each, commands)
			}
		})
	}
}
