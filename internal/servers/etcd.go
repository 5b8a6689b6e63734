//go:build unix

package servers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Etcd is a member of an etcd cluster.
type Etcd struct {
	*Process
	Addr string // host:port for clients

	dir string
}

// etcdPath returns the path of the program to run as etcd: the value of the environment variable
// HOLDFAST_ETCD_SERVER, so that the same tests run on another version. If the variable is not set,
// it returns "", and etcd is found on the PATH.
func etcdPath() string { return os.Getenv("HOLDFAST_ETCD_SERVER") }

// StartEtcd starts a cluster of one member. The args are additional ones of the server, as in
// "--quota-backend-bytes=4194304".
func StartEtcd(tb TB, args ...string) *Etcd {
	tb.Helper()
	return StartEtcdCluster(tb, 1, args...)[0]
}

// StartEtcdCluster starts a cluster of n members, and returns when all of them serve.
func StartEtcdCluster(tb TB, n int, args ...string) []*Etcd {
	tb.Helper()
	members := make([]*Etcd, n)
	peers, list := make([]string, n), make([]string, n)
	for i := range members {
		members[i] = &Etcd{Addr: fmt.Sprintf("127.0.0.1:%d", freePort(tb)), dir: tb.TempDir()}
		peers[i] = fmt.Sprintf("http://127.0.0.1:%d", freePort(tb))
		list[i] = fmt.Sprintf("m%d=%s", i, peers[i])
	}
	for i, m := range members {
		m.Process = runServer(tb, serverSpec{
			name: "etcd",
			path: etcdPath(),
			args: append([]string{
				"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(m.dir, "data"), "--log-level", "error",
				"--listen-client-urls", "http://" + m.Addr, "--advertise-client-urls", "http://" + m.Addr,
				"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
				"--initial-cluster", strings.Join(list, ","),
			}, args...),
			dir:        m.dir,
			ready:      func() error { return nil }, // A member serves when a majority runs.
			stopSignal: syscall.SIGTERM,
		})
	}
	for _, m := range members {
		m.spec.ready = m.health
		waitUntil(tb, "leader at "+m.Addr, func() bool { return m.health() == nil })
	}
	return members
}

// EtcdAddrs returns the addresses of the members.
func EtcdAddrs(members []*Etcd) []string {
	addrs := make([]string, len(members))
	for i, m := range members {
		addrs[i] = m.Addr
	}
	return addrs
}

// Restart kills the member and starts it again with the data that it has on disk. It returns when
// the member has a leader.
func (e *Etcd) Restart() {
	e.tb.Helper()
	e.Kill()
	e.Start()
}

// health returns nil if the member has a leader and confirms a read with it.
func (e *Etcd) health() error {
	client := http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + e.Addr + "/health")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var health struct{ Health, Reason string }
	if err := json.NewDecoder(resp.Body).Decode(&health); err != nil {
		return err
	}
	if health.Health != "true" && !strings.Contains(health.Reason, "ALARM") { // NOSPACE serves
		return fmt.Errorf("the member is not healthy: %s", health.Reason)
	}
	return nil
}
