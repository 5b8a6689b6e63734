//go:build unix

package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Etcd is a member of an etcd cluster.
type Etcd struct {
	*Process
	Addr string // host:port for clients

	name, dir string
	peer      string // URL for the other members
	tb        TB
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
	for i := range members {
		members[i] = newEtcd(tb, i)
	}
	for _, m := range members {
		m.run(members, append([]string{"--initial-cluster-state", "new"}, args...))
	}
	for _, m := range members {
		m.spec.ready = m.health
		waitUntil(tb, "leader at "+m.Addr, func() bool { return m.health() == nil })
	}
	return members
}

// StartEtcdLearner adds a member without a vote to a cluster. It returns when the member runs.
func StartEtcdLearner(tb TB, members []*Etcd) *Etcd {
	tb.Helper()
	learner := newEtcd(tb, len(members))
	request := fmt.Sprintf(`{"peerURLs": [%q], "isLearner": true}`, learner.peer)
	waitUntil(tb, "cluster that takes a learner", func() bool { // The members have to be connected for 5 s.
		return members[0].call("cluster/member/add", request, nil) == nil
	})
	learner.run(append(slices.Clone(members), learner), []string{"--initial-cluster-state", "existing"})
	waitUntil(tb, "learner at "+learner.Addr, func() bool { return learner.call("maintenance/status", "{}", nil) == nil })
	return learner
}

func newEtcd(tb TB, i int) *Etcd {
	tb.Helper()
	return &Etcd{
		name: fmt.Sprintf("m%d", i), dir: tb.TempDir(), tb: tb,
		Addr: fmt.Sprintf("127.0.0.1:%d", freePort(tb)), peer: fmt.Sprintf("http://127.0.0.1:%d", freePort(tb)),
	}
}

// run starts the member of a cluster. It does not wait for it: a member serves when a majority runs.
func (e *Etcd) run(cluster []*Etcd, args []string) {
	var list []string
	for _, m := range cluster {
		list = append(list, m.name+"="+m.peer)
	}
	e.Process = runServer(e.tb, serverSpec{
		name: "etcd",
		path: etcdPath(),
		args: append([]string{
			"--name", e.name, "--data-dir", filepath.Join(e.dir, "data"), "--log-level", "error",
			"--listen-client-urls", "http://" + e.Addr, "--advertise-client-urls", "http://" + e.Addr,
			"--listen-peer-urls", e.peer, "--initial-advertise-peer-urls", e.peer,
			"--initial-cluster", strings.Join(list, ","),
		}, args...),
		dir:        e.dir,
		ready:      func() error { return nil },
		stopSignal: syscall.SIGTERM,
	})
}

// Leads reports whether the member is the leader.
func (e *Etcd) Leads() bool {
	var state struct {
		Header struct {
			MemberID string `json:"member_id"`
		}
		Leader string
	}
	return e.call("maintenance/status", "{}", &state) == nil && state.Leader == state.Header.MemberID
}

// Compact removes all revisions but the last.
func (e *Etcd) Compact() {
	e.tb.Helper()
	waitUntil(e.tb, "compaction at "+e.Addr, func() bool {
		var state struct{ Header struct{ Revision string } }
		err := e.call("maintenance/status", "{}", &state)
		if err == nil {
			err = e.call("kv/compaction", fmt.Sprintf(`{"revision": %q}`, state.Header.Revision), nil)
		}
		return err == nil || strings.Contains(err.Error(), "has been compacted")
	})
}

// RaiseNoSpace has the cluster refuse to write, as if its space was used up.
func (e *Etcd) RaiseNoSpace() { e.alarm("ACTIVATE") }

// EndNoSpace ends what RaiseNoSpace does.
func (e *Etcd) EndNoSpace() { e.alarm("DEACTIVATE") }

func (e *Etcd) alarm(action string) {
	e.tb.Helper()
	request := fmt.Sprintf(`{"action": %q, "memberID": 1, "alarm": "NOSPACE"}`, action)
	waitUntil(e.tb, "alarm at "+e.Addr, func() bool { return e.call("maintenance/alarm", request, nil) == nil })
}

// call sends a request in JSON to the member, and reads the reply.
func (e *Etcd) call(method, request string, reply any) error {
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Post("http://"+e.Addr+"/v3/"+method, "application/json", strings.NewReader(request))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s of etcd: %s", method, text)
	case reply == nil:
		return nil
	}
	return json.Unmarshal(text, reply)
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
