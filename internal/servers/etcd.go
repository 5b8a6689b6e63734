//go:build unix

package servers

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// Etcd is a member of an etcd cluster.
type Etcd struct {
	*Process
	Addr string // host:port for clients

	name, dir string
	scheme    string            // of Addr
	client    http.RoundTripper // for requests to Addr
	peer      string            // URL at which it listens for the other members
	advertise string            // URL at which the other members connect
	inbound   *faultproxy.Proxy // between the two, nil if they are the same
	cluster   []*Etcd           // all members that were started together
	tb        testing.TB
}

// StartEtcd starts a cluster of one member. The args are additional ones of the server, as in
// "--quota-backend-bytes=4194304".
func StartEtcd(tb testing.TB, args ...string) *Etcd {
	tb.Helper()
	return StartEtcdCluster(tb, 1, args...)[0]
}

// StartEtcdTLS starts a cluster of one member whose clients use TLS. The args contain its
// certificate and key, and config is that of a client which it accepts.
func StartEtcdTLS(tb testing.TB, config *tls.Config, args ...string) *Etcd {
	tb.Helper()
	return startEtcds(tb, 1, args, func(m *Etcd) {
		m.scheme, m.client = "https", &http.Transport{TLSClientConfig: config}
	})[0]
}

// StartEtcdCluster starts a cluster of n members, and returns when all of them serve.
func StartEtcdCluster(tb testing.TB, n int, args ...string) []*Etcd {
	tb.Helper()
	return startEtcds(tb, n, args, func(*Etcd) {})
}

// StartEtcdClusterWithLinks is StartEtcdCluster for members with CutOff.
func StartEtcdClusterWithLinks(tb testing.TB, n int, args ...string) []*Etcd {
	tb.Helper()
	return startEtcds(tb, n, args, func(m *Etcd) {
		m.inbound = faultproxy.Start(tb, strings.TrimPrefix(m.peer, "http://"))
		m.advertise = "http://" + m.inbound.Addr()
	})
}

func startEtcds(tb testing.TB, n int, args []string, change func(*Etcd)) []*Etcd {
	tb.Helper()
	members := make([]*Etcd, n)
	for i := range members {
		members[i] = newEtcd(tb, i)
		change(members[i])
	}
	for _, m := range members {
		m.run(members, append([]string{"--initial-cluster-state", "new"}, args...))
	}
	for _, m := range members {
		m.spec.ready = m.health
		storecheck.Eventually(tb, "leader at "+m.Addr, func() bool { return m.health() == nil })
	}
	return members
}

// StartEtcdLearner adds a member without a vote to a cluster. It returns when the member runs.
func StartEtcdLearner(tb testing.TB, members []*Etcd) *Etcd {
	tb.Helper()
	learner := newEtcd(tb, len(members))
	request := fmt.Sprintf(`{"peerURLs": [%q], "isLearner": true}`, learner.advertise)
	storecheck.Eventually(tb, "cluster that takes a learner", func() bool { // The members have to be connected for 5 s.
		return members[0].call("cluster/member/add", request, nil) == nil
	})
	learner.run(append(slices.Clone(members), learner), []string{"--initial-cluster-state", "existing"})
	storecheck.Eventually(tb, "learner at "+learner.Addr, func() bool { return learner.call("maintenance/status", "{}", nil) == nil })
	return learner
}

func newEtcd(tb testing.TB, i int) *Etcd {
	tb.Helper()
	peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(tb))
	return &Etcd{
		name: fmt.Sprintf("m%d", i), dir: tb.TempDir(), tb: tb, scheme: "http", client: &http.Transport{},
		Addr: fmt.Sprintf("127.0.0.1:%d", freePort(tb)), peer: peer, advertise: peer,
	}
}

// run starts the member of a cluster. It does not wait for it: a member serves when a majority
// runs.
func (e *Etcd) run(cluster []*Etcd, args []string) {
	e.cluster = cluster
	var list []string
	for _, m := range cluster {
		list = append(list, m.name+"="+m.advertise)
	}
	e.Process = runServer(e.tb, serverSpec{
		name: "etcd",
		path: os.Getenv("TEST_ETCD_SERVER"),
		args: append([]string{
			"--name", e.name, "--data-dir", filepath.Join(e.dir, "data"), "--log-level", "error",
			"--listen-client-urls", e.scheme + "://" + e.Addr, "--advertise-client-urls", e.scheme + "://" + e.Addr,
			"--listen-peer-urls", e.peer, "--initial-advertise-peer-urls", e.advertise,
			"--initial-cluster", strings.Join(list, ","),
		}, args...),
		dir:   e.dir,
		ready: func() error { return nil },
	})
}

// status returns the identities of the member and of its leader, 0 if it has none.
func (e *Etcd) status() (member, leader uint64, err error) {
	var reply struct {
		Header struct {
			MemberID uint64 `json:"member_id,string"`
		}
		Leader uint64 `json:",string"`
	}
	err = e.call("maintenance/status", "{}", &reply)
	return reply.Header.MemberID, reply.Leader, err
}

// Leads reports whether the member is the leader.
func (e *Etcd) Leads() bool {
	member, leader, err := e.status()
	return err == nil && leader == member
}

// CutOff cuts the member off from the others, in both directions, and returns when it has no
// leader. Its clients are not cut off.
func (e *Etcd) CutOff() {
	e.tb.Helper()
	member, _, err := e.status()
	if err != nil {
		e.tb.Fatal(err)
	}
	from := []byte("X-Server-From: " + strconv.FormatUint(member, 16) + "\r\n")
	for _, m := range e.cluster {
		if m != e {
			m.inbound.Mark(func(request []byte) bool { return bytes.Contains(request, from) })
			m.inbound.HoldMarked(faultproxy.Up)
			m.inbound.HoldMarked(faultproxy.Down)
			m.inbound.Reset() // The connections of before are not marked.
		}
	}
	e.inbound.Hold(faultproxy.Up)
	e.inbound.Hold(faultproxy.Down)
	storecheck.Eventually(e.tb, "end of the leader of "+e.Addr, func() bool {
		_, leader, err := e.status()
		return err == nil && leader == 0
	})
}

// Rejoin ends CutOff. It returns when the member has a leader.
func (e *Etcd) Rejoin() {
	e.tb.Helper()
	for _, m := range e.cluster {
		m.inbound.Pass(faultproxy.Up)
		m.inbound.Pass(faultproxy.Down)
		m.inbound.PassMarked(faultproxy.Up)
		m.inbound.PassMarked(faultproxy.Down)
		m.inbound.Reset()
	}
	storecheck.Eventually(e.tb, "leader at "+e.Addr, func() bool { return e.health() == nil })
}

// RaiseNoSpace has the cluster refuse to write, as if its space was used up.
func (e *Etcd) RaiseNoSpace() {
	e.tb.Helper()
	const request = `{"action": "ACTIVATE", "memberID": 1, "alarm": "NOSPACE"}`
	storecheck.Eventually(e.tb, "alarm at "+e.Addr, func() bool { return e.call("maintenance/alarm", request, nil) == nil })
}

// call sends a request in JSON to the member, and reads the reply.
func (e *Etcd) call(method, request string, reply any) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: e.client}
	defer client.CloseIdleConnections()
	resp, err := client.Post(e.scheme+"://"+e.Addr+"/v3/"+method, "application/json", strings.NewReader(request))
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

// RestartEmpty kills the only member of a cluster, and starts it again without its data.
func (e *Etcd) RestartEmpty() {
	e.tb.Helper()
	e.Kill()
	if err := os.RemoveAll(filepath.Join(e.dir, "data")); err != nil {
		e.tb.Fatal(err)
	}
	e.Start()
}

// Snapshot copies the data of the only member of a cluster, which starts again. What it returns
// brings the member back to the copy.
func (e *Etcd) Snapshot() (restore func()) {
	e.tb.Helper()
	data, saved := filepath.Join(e.dir, "data"), filepath.Join(e.dir, "saved")
	e.Kill()
	if err := os.CopyFS(saved, os.DirFS(data)); err != nil {
		e.tb.Fatal(err)
	}
	e.Start()
	return func() {
		e.tb.Helper()
		e.Kill()
		if err := cmp.Or(os.RemoveAll(data), os.Rename(saved, data)); err != nil {
			e.tb.Fatal(err)
		}
		e.Start()
	}
}

// health returns nil if the member confirms a read with its leader.
func (e *Etcd) health() error { return e.call("kv/range", `{"key": "AA=="}`, nil) }
