//go:build unix

package redisstore

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// All clients of one server count tokens in the same key, or are refused: else tokens
// could fall when the server's clock is set back.
func TestOneCounter(t *testing.T) {
	t.Parallel()
	t.Run("a cluster's client of a single server", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedis(t)
		mapped := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{server.Addr},
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{Start: 0, End: hashSlots - 1, Nodes: []redis.ClusterNode{{Addr: server.Addr}}}}, nil
			},
		})
		listed := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}})
		for says, client := range map[string]*redis.ClusterClient{
			"NewFailoverClusterClient": mapped,
			"cluster support disabled": listed,
		} {
			s := New(client, nil)
			target := driver.ErrUnsupported
			if client == listed {
				target = driver.ErrNotApplied
			}
			fails(t, s, target, says, allVerbs...)
			_ = s.Close()
			_ = client.Close()
		}
		if keys := server.Do("KEYS", "*"); keys != "" {
			t.Errorf("the keys %q are there", keys)
		}
	})
	t.Run("a single server's client of a node", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedis(t, "--cluster-enabled", "yes")
		server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
		eventually(t, "cluster of one node", func() bool { return strings.Contains(server.Do("CLUSTER", "INFO"), "cluster_state:ok") })
		// With a hash tag in the prefix the server takes the scripts of both.
		opts := &Options{Prefix: "{app}:"}
		single, ofCluster := open(t, server.Addr, opts), over(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}}), opts)
		var last int64
		for i := range 10 {
			s := single
			if i%2 == 1 {
				s = ofCluster
			}
			req := grant(t, s, "name", time.Minute)
			rec, _, err := look(s, t.Context(), "name")
			if err != nil || rec.Token <= last {
				t.Errorf("token %d after %d, %v", rec.Token, last, err)
			}
			last = rec.Token + int64(time.Hour/time.Microsecond) // The clock is set back by an hour.
			server.Do("SET", s.newCall(lookupScript, s.common, "name").tag+s.prefix+counterSuffix, strconv.FormatInt(last, 10))
			release(t, s, req)
		}
		// Without one it refuses those of a single server, whatever the name.
		plain := open(t, server.Addr, nil)
		for _, name := range []string{"name", "{lock:}", "{a}b"} {
			req := request(name, time.Minute)
			if res, err := plain.Acquire(t.Context(), req); err == nil || !strings.Contains(err.Error(), "use a cluster client") {
				t.Errorf("Acquire of %q: %+v, %v, want it refused", name, res, err)
			}
		}
		fails(t, plain, driver.ErrNotApplied, "use a cluster client", "Acquire")
	})
}

func TestNilClient(t *testing.T) {
	fails(t, New(nil, nil), driver.ErrInvalid, "the client is nil", allVerbs...)
}
