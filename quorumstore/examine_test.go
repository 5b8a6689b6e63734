//go:build unix

package quorumstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/redisstore"
)

// examined returns the checks of the quorum and of Examine with what was found, and the findings.
func examined(t *testing.T, s driver.Store) (checks, text string, err error) {
	t.Helper()
	findings, err := holdfast.Examine(t.Context(), s, nil)
	for _, f := range findings {
		if f.Server == "" {
			checks += " " + strings.TrimPrefix(f.Check, "quorum.") + " " + f.Severity.String()
		}
		if (f.Want == "") != (f.Severity == driver.SeverityOK || f.Severity == driver.SeverityNote) {
			t.Errorf("%+v: only what is not well has something to want", f)
		}
	}
	return strings.TrimSpace(checks), fmt.Sprint(findings), err
}

// redisQuorum returns a quorum of these servers, one for each address.
func redisQuorum(t *testing.T, addrs ...string) *quorumstore.Store {
	var nodes []driver.Store
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		nodes = append(nodes, redisstore.New(client, nil))
	}
	s := quorumstore.New(nodes, &quorumstore.Options{Timeout: patient, CloseStores: true})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

const wellQuorum = "size ok majority ok latency ok probe ok clock ok notices note"

// Each check has a quorum that is ill in just that way. Two examinations leave no key of a name.
func TestExamine(t *testing.T) {
	t.Parallel()
	safe := []string{"--appendonly", "yes", "--appendfsync", "always"}
	nodes := servers.StartRedises(t, 4, safe...)
	a, b, c, d := nodes[0].Addr, nodes[1].Addr, nodes[2].Addr, nodes[3].Addr
	check := func(what string, s driver.Store, want, says string) {
		t.Helper()
		if checks, text, err := examined(t, s); checks != want || !strings.Contains(text, says) || err != nil {
			t.Errorf("%s: %s, %v\n%s\nwant %s, and %q", what, checks, err, text, want, says)
		}
	}
	for range 2 {
		check("well", redisQuorum(t, a, b, c), wellQuorum, "ok redis.persistence (node 2: "+b+")")
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) { // A minority is not waited for.
			left := ""
			for _, node := range nodes {
				for key := range strings.FieldsSeq(node.Do("KEYS", "*")) {
					if key != "lock:\x1fcounter" && key != "lock:\x1fqueues" && key != "lock:\x1fahead" {
						left = key
					}
				}
			}
			if left == "" {
				break
			}
			if time.Since(began) > patient {
				t.Fatalf("left: %q", left)
			}
		}
	}
	check("four nodes", redisQuorum(t, a, b, c, d), strings.Replace(wellQuorum, "size ok", "size warn", 1), "3 nodes survive as many failures")
	check("one node", redisQuorum(t, a), strings.Replace(wellQuorum, "size ok", "size warn", 1), "an odd number of nodes, three at least")

	nodes[1].Do("CONFIG", "SET", "maxmemory", "100mb")
	nodes[1].Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	check("an ill node", redisQuorum(t, a, b, c), wellQuorum, "fail redis.eviction (node 2: "+b+")")
	nodes[1].Do("CONFIG", "SET", "maxmemory", "0")

	s := redisQuorum(t, a, b, c)
	nodes[2].Kill()
	check("a node down", s, strings.Replace(wellQuorum, "majority ok", "majority warn", 1), "not all nodes can be reached: node 3 (redis): ")
	nodes[1].Kill()
	if checks, text, err := examined(t, s); checks != "size ok majority fail" || err == nil || !strings.Contains(err.Error(), "no majority of the nodes can be reached") {
		t.Errorf("without a majority: %s, %v\n%s", checks, err, text)
	}
}

// A node that is no driver.Examiner is examined, too.
func TestExamineMemory(t *testing.T) {
	var nodes []driver.Store
	for range 3 {
		nodes = append(nodes, memstore.New())
	}
	s := quorumstore.New(nodes, &quorumstore.Options{CloseStores: true, Timeout: patient})
	defer s.Close()
	want := strings.Replace(wellQuorum, "clock ok ", "", 1)
	if checks, text, err := examined(t, s); checks != want || err != nil {
		t.Errorf("%s, %v\n%s", checks, err, text)
	}
	_ = nodes[0].Close()
	_ = nodes[1].Close()
	began := time.Now()
	if _, _, err := examined(t, s); err == nil || time.Since(began) > patient*2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
