//go:build unix

package redisstore

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// watch has MONITOR show what the server does until lines is called, which returns it.
func watch(t testing.TB, server *servers.Redis) (lines func() []string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	if ok, err := reader.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		t.Fatal(ok, err)
	}
	return func() (all []string) {
		defer conn.Close()
		server.Do("ECHO", "end of the watch")
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, "end of the watch") {
				return all
			}
			all = append(all, line)
		}
	}
}

// words returns the arguments of a command that MONITOR shows. Valkey 8 leaves quotes in them as
// they are.
func words(line string) (all []string) {
	_, text, _ := strings.Cut(strings.TrimSpace(line), "] ")
	for rest := text; rest != ""; rest = strings.TrimLeft(rest, " ") {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return strings.Split(text[1:len(text)-1], `" "`)
		}
		rest = rest[len(quoted):]
		all = append(all, quoted[1:len(quoted)-1])
	}
	return all
}

// undeclared reports the keys that scripts have touched without having them among their KEYS, and
// secrets in messages. It returns how many commands of scripts there were.
func undeclared(t testing.TB, lines []string) (touched int) {
	t.Helper()
	var keys []string
	for _, line := range lines {
		command := words(line)
		name := strings.ToLower(command[0])
		if strings.HasPrefix(name, "eval") {
			n, _ := strconv.Atoi(command[2])
			keys = command[3 : 3+n]
		}
		if !strings.Contains(line, " lua] ") || name == "time" || name == "info" {
			continue
		}
		if name == "publish" {
			if strings.Contains(line, "Secret") {
				t.Errorf("a message has a secret: %s", line)
			}
			continue
		}
		touched++
		for _, word := range command[1:] {
			if strings.HasPrefix(word, "lock:") && !slices.Contains(keys, word) {
				t.Errorf("the key %q is not declared: %s", word, line)
			}
		}
	}
	return touched
}

// The holder learns of a Break, also of one of several, and of one that it has adopted; and that
// one of several has run out. It learns that also if another Client had the Store before, for a
// moment.
func TestBreakIsTold(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	mine, other := open(t, server.Addr, nil), open(t, server.Addr, nil)
	stop := mine.Notify(func(string, string, int64) {})
	grant(t, mine, "first", time.Minute)
	stop()
	eventually(t, "a subscription", func() bool { return len(mine.client.PubSubChannels(t.Context(), "*").Val()) == 1 })
	told := make(chan string, 10)
	defer mine.Notify(func(_, owner string, token int64) {
		if owner != "" {
			told <- owner + " " + strconv.FormatInt(token, 10)
		}
	})()
	next := func() string {
		select {
		case notice := <-told:
			return notice
		case <-time.After(20 * time.Second):
			return "nothing"
		}
	}
	for _, limit := range []int{1, 3} {
		for _, maker := range []*Store{mine, other} {
			req, token := share(t, maker, "name", limit, time.Minute)
			if maker == other {
				renew(t, mine, req) // as after an Adopt: it is this client's from now on
			}
			if ended, err := other.Break(t.Context(), "name", token); err != nil || len(ended) != 1 {
				t.Fatal(ended, err)
			}
			if got := next(); got != req.Owner+" 0" {
				t.Errorf("limit %d, adopted %v: told %q", limit, maker == other, got)
			}
		}
	}
	over, _ := share(t, mine, "name", 3, time.Millisecond)
	eventually(t, "end of a hold", func() bool { _, held, err := look(other, t.Context(), "name"); return !held && err == nil })
	if got := next(); got != over.Owner+" 0" {
		t.Errorf("told %q of a hold that has run out beside others", got)
	}
}

// crowd makes thousands of entries, each of an owner of its own.
func crowd(s *Store, thousands int, req driver.Request) {
	for range thousands {
		all := make([]*call, 1000)
		for i := range all {
			req.Owner = request("", 0).Owner
			all[i] = s.acquireCall(&req)
		}
		sendTogether(s, all...)
	}
}

// Ten thousand places of clients that are no more do not stop the server, and a newcomer passes
// them. Four thousand readers that have ended together are in the way of nobody.
func TestDeadPlaces(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	const lasts = 10 * time.Second // A busy machine must be able to make all meanwhile.
	crowd(s, 4, driver.Request{Name: "readers", TTL: lasts, Limit: driver.Shared})
	share(t, s, "readers", driver.Shared, time.Minute)
	held := grant(t, s, "name", time.Minute)
	crowd(s, 10, driver.Request{Name: "name", TTL: time.Minute, Place: lasts})
	last := wait(t, s, "name", time.Minute)
	time.Sleep(lasts) // until the others are over
	if records, err := s.Lookup(t.Context(), "readers"); err != nil || len(records) != 1 {
		t.Errorf("%d readers, %v, want the one that lives", len(records), err)
	}
	if n := server.Do("ZCARD", "lock:"+queueInfix+"lock:name"); n != "10001" {
		t.Fatalf("%s places", n)
	}
	release(t, s, held)
	if n, err := strconv.Atoi(server.Do("ZCARD", "lock:"+queueInfix+"lock:name")); err != nil || n < 8000 {
		t.Errorf("a release leaves %d places, %v, want that it drops 2000 at most", n, err)
	}
	var together []*call
	for _, name := range []string{"name", "another"} {
		req := request(name, time.Minute)
		req.Limit = 2
		together = append(together, s.acquireCall(&req))
	}
	sendTogether(s, together...)
	if token, _ := together[1].reply.(int64); token == 0 {
		t.Errorf("places of one name are in the way of another in the same run: %v", together[1].reply)
	}
	for i := range 3 { // Each drops some of the places, and cannot know yet whether all are over.
		req := request("name", time.Minute)
		req.Place = time.Duration(i%2) * time.Minute
		res, err := s.Acquire(t.Context(), req)
		inTheWay := err == nil && res.Held.Remaining > 0
		if res.Granted || !inTheWay && !errors.As(err, new(*driver.RetryError)) {
			t.Fatalf("newcomer %d: %+v, %v, though nobody is known to hold", i, res, err)
		}
	}
	if !release(t, s, last) {
		t.Error("the place that lives is gone")
	}
	eventually(t, "grant", func() bool {
		res, err := s.Acquire(t.Context(), request("name", time.Minute))
		return err == nil && res.Granted
	})
}
