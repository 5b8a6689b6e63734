//go:build unix

package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// commandsOf counts the commands that a server carries out for f, without the scripts that have
// them and without those of new connections.
func commandsOf(server *servers.Redis, f func()) (n int) {
	server.Do("CONFIG", "RESETSTAT")
	f()
	for line := range strings.Lines(server.Do("INFO", "commandstats")) {
		command, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		command, _, _ = strings.Cut(command, "|")
		calls := 0
		switch command {
		case "eval", "evalsha", "config", "client", "info", "hello", "ping", "subscribe":
			ok = false
		}
		if _, err := fmt.Sscanf(rest, "%d,", &calls); ok && err == nil {
			n += calls
		}
	}
	return n
}

// placesOf makes n places for shared holds.
func placesOf(t *testing.T, s *engine, name string, n int) []olddriver.AcquireRequest {
	t.Helper()
	var reqs []olddriver.AcquireRequest
	for range n {
		req := queueOf(name)
		req.Limit = olddriver.Shared
		reqs = append(reqs, req)
	}
	if res := acquire(t, s, reqs[0]); !res.Queued { // The Store receives notices from now on.
		t.Fatalf("Acquire: %+v, want a place", res)
	}
	for some := range slices.Chunk(reqs[1:], 50) { // A busy machine carries out each in time.
		var all []*call
		for _, req := range some {
			all = append(all, mustAcquireCall(t, s, req))
		}
		sendTogether(s, all...)
		for _, c := range all {
			reply, err := s.readReply(c)
			if err != nil {
				t.Fatal(err)
			}
			if res, err := granted(name, reply); err != nil || !res.Queued {
				t.Fatalf("Acquire: %+v, %v, want a place", res, err)
			}
		}
	}
	return reqs
}

// One script admits 200 places. The next is notified, and its claim goes on; so does any other
// request. Places of a client that has ended stop nobody, and a newcomer overtakes nobody.
func TestCrowdOfReaders(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"claim", "renewal", "attempt"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			s, other := open(t, server.Addr, nil), open(t, server.Addr, nil)
			writer := grant(t, s, "name", time.Minute)
			readers := placesOf(t, s, "name", 300)
			dead := placesOf(t, other, "name", 250)
			_ = other.Close()
			readers = append(readers, placesOf(t, s, "name", 750)...)
			last := enqueue(t, s, "name")
			eventually(t, "end of the connection", func() bool { return subscribers(server) == 1 })
			notices := noticesOf(t, s)
			token, in := int64(0), 0
			admit := func(most int, do func()) {
				if n := commandsOf(server, do); n > 3500 {
					t.Errorf("from reader %d on a script runs %d commands, want those of 200 admissions", in, n)
				}
				for ; most > 0 && in < len(readers); most-- {
					n := expect(t, notices, olddriver.Granted, readers[in])
					if n.Token <= token {
						t.Fatalf("reader %d: token %d after %d", in, n.Token, token)
					}
					token = n.Token
					in++
				}
				if in < len(readers) {
					expect(t, notices, olddriver.Ask, readers[in])
				}
			}
			admit(200, func() { release(t, s, writer) })
			for in < len(readers) {
				switch by {
				case "claim":
					admit(199, func() {
						res := claim(t, s, readers[in])
						if !res.Granted || res.Token <= token {
							t.Fatalf("a claim in its turn: %+v after token %d", res, token)
						}
						token = res.Token
						in++
					})
				case "renewal":
					admit(200, func() { renew(t, s, last) })
				case "attempt":
					admit(200, func() {
						if res := acquire(t, s, sharing("name", time.Minute, olddriver.Shared)); res.Granted {
							t.Fatal("a newcomer has overtaken")
						}
					})
				}
			}
			silent(t, notices)
			if res := claim(t, s, last); res.Granted || !res.First {
				t.Errorf("the writer behind the readers: %+v", res)
			}
			if outcome := renew(t, s, dead[0]); outcome != olddriver.Renewed {
				t.Errorf("the renewal of a reader that was passed over, before the writer: %v", outcome)
			}
		})
	}
}

// Places of a client that has ended cost one walk, whatever their number, and requests after it
// nothing.
func TestManyDeadPlaces(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s, dead := open(t, server.Addr, nil), open(t, server.Addr, nil)
	held := grant(t, s, "name", time.Minute)
	const places = 1000
	late := placesOf(t, dead, "name", places)
	_ = dead.Close()
	eventually(t, "end of the connection", func() bool { return subscribers(server) == 0 })
	if n := commandsOf(server, func() { release(t, s, held) }); n > 3*places/2 {
		t.Errorf("the release runs %d commands for %d dead places", n, places)
	}
	if n := numberOf(t, server, "pubsub|numsub"); n != 1 {
		t.Errorf("the release counts the receivers of one client %d times", n)
	}
	for range 3 {
		req := request("name", time.Minute)
		if n := commandsOf(server, func() { acquire(t, s, req) }); n > 25 {
			t.Errorf("an acquisition after it runs %d commands", n)
		}
		next := enqueue(t, s, "name")
		if n := commandsOf(server, func() { release(t, s, req) }); n > 30 {
			t.Errorf("a release after it runs %d commands", n)
		}
		release(t, s, next)
	}
	// A client that is alive nevertheless has its turn again, before those that came later.
	held = grant(t, s, "name", time.Minute)
	next := enqueue(t, s, "name")
	if renew(t, s, late[places/2]) != olddriver.RenewQueued || !claim(t, s, late[places/3]).First {
		t.Error("a place that was passed over is gone")
	}
	notices := noticesOf(t, s)
	release(t, s, held)
	for _, req := range []olddriver.AcquireRequest{late[places/3], late[places/2]} {
		if outcome := renew(t, s, req); outcome != olddriver.Renewed {
			t.Errorf("the renewal of a place in its turn: %v", outcome)
		}
		release(t, s, req)
	}
	expect(t, notices, olddriver.Granted, next)
}
