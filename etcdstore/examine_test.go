//go:build unix

package etcdstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

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

const wellEtcd = "members note member ok version - space ok rights ok ttl ok latency ok probe ok clock ok notices ok"

// An examination leaves no key of its names.
func TestExamine(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	s := open(t, member)
	wantExamined(t, s, nil, wellEtcd)
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

// Members that are down, without a leader, or without a vote are found while the others serve.
func TestExamineMembers(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 3)
	s, quick := open(t, cluster...), &holdfast.ExamineOptions{NoProbe: true}
	const well = "members ok member ok version - member ok version - member ok version - space ok rights ok ttl ok latency ok"
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
	if checks, text := examined(t, s, quick); !strings.HasPrefix(checks, "members ok member ok version - member ok version - member warn space") {
		t.Errorf("%s\n%s", checks, text)
	}
	cluster[1].Kill()
	if checks, text := examined(t, s, quick); !strings.Contains(checks, holdfast.ErrUnavailable.Error()) {
		t.Errorf("%s\n%s", checks, text)
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
	member := servers.StartEtcd(t)
	root, ctx := directClient(t, member), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for user, kind := range map[string]clientv3.PermissionType{
		"reader": clientv3.PermissionType(clientv3.PermRead), "writer": clientv3.PermissionType(clientv3.PermReadWrite),
	} {
		_, err := root.RoleAdd(ctx, user)
		must(err)
		_, err = root.RoleGrantPermission(ctx, user, DefaultPrefix, clientv3.GetPrefixRangeEnd(DefaultPrefix), kind)
		must(err)
		_, err = root.UserAdd(ctx, user, "secret")
		must(err)
		_, err = root.UserGrantRole(ctx, user, user)
		must(err)
	}
	_, err := root.UserAdd(ctx, "root", "secret")
	must(err)
	_, err = root.UserGrantRole(ctx, "root", "root")
	must(err)
	_, err = root.AuthEnable(ctx)
	must(err)
	for user, want := range map[string]string{
		"writer": wellEtcd,
		"reader": "members note member ok version - space ok rights fail ttl ok latency ok probe fail",
	} {
		s, err := openText(t, "etcd://"+user+":secret@"+member.Addr)
		must(err)
		wantExamined(t, s, nil, want)
		must(s.Close())
	}
	if _, err := openText(t, "etcd://writer:wrong@"+member.Addr); err == nil || strings.Contains(err.Error(), "wrong@") {
		t.Errorf("a wrong password: %v", err)
	}
}

func TestExamineSpace(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartEtcd(t, "--quota-backend-bytes", "2097152"))
	useUpSpace(t, s)
	if checks, text := examined(t, s, nil); !strings.HasPrefix(checks, "members note member ok version - space fail rights unknown ttl ok latency ok probe fail") {
		t.Errorf("%s\n%s", checks, text)
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
