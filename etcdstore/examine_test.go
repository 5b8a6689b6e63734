//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// examined returns the checks with their severities, and the findings. A release with the defect of
// leases has the same checks as one without.
func examined(t *testing.T, s *Store, o *holdfast.ExamineOptions) (checks, text string) {
	t.Helper()
	findings, err := holdfast.Examine(t.Context(), s, o)
	for _, f := range findings {
		severity := f.Severity.String()
		if f.Check == checkVersion {
			severity = "-"
		}
		checks += " " + strings.TrimPrefix(f.Check, "etcd.") + " " + severity
		if (f.Want == "") != (f.Severity == driver.SeverityOK) {
			checks += "?"
		}
	}
	if err != nil {
		checks += " " + err.Error()
	}
	return strings.TrimSpace(checks), fmt.Sprint(findings)
}

func wantExamined(t *testing.T, s *Store, o *holdfast.ExamineOptions, want string) {
	t.Helper()
	if checks, text := examined(t, s, o); checks != want {
		t.Errorf("%s, want\n%s\n%s", checks, want, text)
	}
}

const wellEtcd = "members note member ok version - space ok tls ok rights ok ttl ok latency ok probe ok clock ok notices ok"

// An examination leaves no key of its names.
func TestExamine(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	s := open(t, member)
	wantExamined(t, s, nil, wellEtcd)
	wantExamined(t, s, nil, wellEtcd) // once more, on what the first has left
	grant(t, s, request("owner", time.Hour))
	if err := s.Forget(t.Context(), "name"); err != nil {
		t.Error(err)
	}
	resp, err := s.client.Get(t.Context(), DefaultPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || resp.Count != 3 {
		t.Errorf("%d keys, want the 3 of the lock that is held: %v, %v", resp.Count, resp.Kvs, err)
	}
	short := strings.Replace(wellEtcd, "ttl ok", "ttl note", 1)
	wantExamined(t, s, &holdfast.ExamineOptions{TTL: electionTime - 1}, short)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Examine(t.Context(), driver.Examination{}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Members that are down or without a vote are found while the others serve.
func TestExamineMembers(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 3)
	s, quick := open(t, cluster...), &holdfast.ExamineOptions{NoProbe: true}
	const well = "members ok member ok version - member ok version - member ok version - space ok tls ok rights ok ttl ok latency ok"
	wantExamined(t, s, quick, well)
	learner := servers.StartEtcdLearner(t, cluster)
	alone := New(directClient(t, append(cluster, learner)...), nil)
	// Whether the client repeats a request that the learner refuses depends on the release.
	want := strings.Replace(strings.TrimSuffix(well, " latency ok"), "space", "member fail version - space", 1)
	if checks, text := examined(t, alone, quick); !strings.HasPrefix(checks, want) {
		t.Errorf("%s, want\n%s\n%s", checks, want, text)
	}
	if err := alone.Close(); err != nil {
		t.Error(err)
	}
	cluster[2].Kill()
	if checks, text := examined(t, s, quick); !strings.HasPrefix(checks, "members warn member ok version - member ok version - member warn space") {
		t.Errorf("%s\n%s", checks, text)
	}
	cluster[1].Kill()
	var checks, text string
	eventually(t, "finding of a member without a leader", func() bool {
		checks, text = examined(t, s, quick)
		return strings.Contains(text, "it has no leader")
	})
	if !strings.HasPrefix(checks, "member warn version - member warn member warn ") || !strings.Contains(checks, holdfast.ErrUnavailable.Error()) {
		t.Errorf("%s\n%s", checks, text)
	}
}

// A member that is not in the URL counts, and is found.
func TestExamineAbsentMembers(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 3)
	s := New(directClient(t, cluster[0]), nil)
	t.Cleanup(func() { must(t, s.Close()) })
	quick := &holdfast.ExamineOptions{NoProbe: true}
	if checks, text := examined(t, s, quick); !strings.HasPrefix(checks, "members ok member note member note member ok ") || !strings.Contains(text, "3 members, of which 1 may fail") {
		t.Errorf("%s\n%s", checks, text)
	}
	cluster[2].Kill()
	var checks, text string
	eventually(t, "finding of the member that is down", func() bool { // It may have led.
		checks, text = examined(t, s, quick)
		return strings.Contains(checks, " ttl ")
	})
	if !strings.HasPrefix(checks, "members warn member ") || !strings.Contains(text, "2 of 3 members serve, of which 0 may fail") || !strings.Contains(text, "it is not in the URL, and cannot be reached") {
		t.Errorf("%s\n%s", checks, text)
	}
}

// A member without a leader is found while the others serve.
func TestExamineWithoutLeader(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdClusterWithLinks(t, 3)
	s := open(t, cluster...)
	cluster[2].CutOff()
	eventually(t, "a leader", func() bool { return cluster[0].Leads() || cluster[1].Leads() })
	for range 4 { // The requests go to the members in turns.
		wantExamined(t, s, &holdfast.ExamineOptions{NoProbe: true},
			"members warn member ok version - member ok version - member warn version - space ok tls ok rights ok ttl ok latency ok")
	}
}

// directClient returns a client without proxies.
func directClient(t *testing.T, members ...*servers.Etcd) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: servers.EtcdAddrs(members), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A user without the right to write is found, and one with it is well.
func TestExamineRights(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t, "--bcrypt-cost", "4")
	enableAuth(t, member, map[string]right{"reader": {mayRead, DefaultPrefix}, "writer": {mayDoIt, DefaultPrefix}})
	for user, want := range map[string]string{
		"writer": wellEtcd,
		"reader": "members note member ok version - space ok tls ok rights fail ttl ok latency ok probe fail",
	} {
		s, err := openText(t, "etcd://"+user+":secret@"+member.Addr)
		must(t, err)
		wantExamined(t, s, nil, want)
		must(t, s.Close())
	}
	if _, err := openText(t, "etcd://writer:wrong@"+member.Addr); err == nil || strings.Contains(err.Error(), "wrong@") {
		t.Errorf("a wrong password: %v", err)
	}
}

func TestExamineSpace(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartEtcd(t, "--quota-backend-bytes", "2097152"))
	useUpSpace(t, s)
	if checks, text := examined(t, s, nil); !strings.HasPrefix(checks, "members note member ok version - space fail tls ok rights unknown ttl ok latency ok probe fail") {
		t.Errorf("%s\n%s", checks, text)
	}
}

// The alarm CORRUPT is found, and it is not taken for that of the space.
func TestExamineCorrupt(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartEtcd(t))
	status, err := s.client.Status(t.Context(), s.client.Endpoints()[0])
	must(t, err)
	_, err = pb.NewMaintenanceClient(s.client.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_CORRUPT,
	})
	must(t, err)
	checks, text := examined(t, s, &holdfast.ExamineOptions{NoProbe: true})
	if !strings.HasPrefix(checks, "members note member ok version - space fail tls ok rights unknown ttl ok") || !strings.Contains(text, "CORRUPT") || strings.Contains(text, "defrag") {
		t.Errorf("%s\n%s", checks, text)
	}
	if res, err := s.Acquire(t.Context(), request("owner", time.Minute)); !driver.IsNotApplied(err) {
		t.Errorf("Acquire: %+v, %v, want it refused", res, err)
	}
}

func TestExamineVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]driver.Severity{
		"3.3.27": driver.SeverityWarning, "3.4.30": driver.SeverityWarning, "3.5.12": driver.SeverityWarning, "?": driver.SeverityWarning,
		"3.4.31": driver.SeverityOK, "3.5.13": driver.SeverityOK, "3.6.0": driver.SeverityOK, "4.0.0": driver.SeverityOK,
	} {
		if f := examineVersion("h:2379", version); f.Severity != want {
			t.Errorf("%s: %v", version, f)
		}
	}
}

// A connection that leaves this host is one of TLS, or a warning.
func TestExamineTransport(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	far, err := clientv3.New(clientv3.Config{Endpoints: servers.EtcdAddrs([]*servers.Etcd{member}), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", member.Addr)
			return farConn{conn}, err
		})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	if checks, text := examined(t, New(far, nil), nil); !strings.Contains(checks, " tls warn ") || !strings.Contains(text, "192.0.2.7:2379 is not encrypted") {
		t.Errorf("%s\n%s", checks, text)
	}
}

// A farConn is a connection to a server that is on another host.
type farConn struct{ net.Conn }

func (farConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000} }
func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 2379} }
