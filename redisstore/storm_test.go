//go:build unix

package redisstore_test

import (
	"bufio"
	"context"
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

// Waiters cost next to nothing beyond what the holder's renewals cause: that is a
// GET for each process that waits, and for the first of a hold an attempt. Each
// process tests its connection as well, after two seconds at first and less and
// less often.
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
			// Each tries once more when its watch is in force, and at the first renewal.
			eventually(t, "waiters", func() bool { return scripts(server) >= before+2*processes })
			if err := lock.Extend(ctx, 90*time.Second); err != nil {
				t.Fatal(err)
			}
			eventually(t, "attempts after a renewal", func() bool { return scripts(server) >= before+3*processes+1 })

			m := startMonitor(t, server)
			go func() {
				for i := range renewals {
					if err := lock.Extend(ctx, time.Duration(i+2)*time.Minute); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			}()
			commands, took := m.during(span)
			gets, pings, attempts := commands["get"], commands["ping"], commands["evalsha"]-renewals
			for _, known := range []string{"get", "ping", "evalsha"} {
				delete(commands, known)
			}
			each := float64(attempts) / waiters / took.Seconds()
			t.Logf("%d waiters of %d processes, %d renewals, %v: %d GETs, %d PINGs, %d attempts; beyond the GETs %.3f commands/s each",
				waiters, processes, renewals, took, gets, pings, attempts, each+float64(pings)/waiters/took.Seconds())
			if gets > renewals*processes || pings > tests(took)*processes || each > 0.1 || len(commands) > 0 {
				t.Errorf("%d GETs, want %d at most; %d PINGs, want %d at most; %.3f attempts/s each, want 0.1 at most; and %v, want none",
					gets, renewals*processes, pings, tests(took)*processes, each, commands)
			}
		})
	}
}

// tests is how often a connection is tested in a span at most: after silences of
// 2, 4, 8 ... seconds.
func tests(span time.Duration) (n int) {
	for silence := 2 * time.Second; span > 0; silence *= 2 {
		span -= silence
		n++
	}
	return n
}
