//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdstore"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// examineTwice checks the exit code of "holdfast doctor --json" and the status of one of its
// checks. A release with the defect of leases has the exit code 1 where another one has 0.
func examineTwice(t *testing.T, url string, code int, check, status, says string, flags ...string) {
	t.Helper()
	for range 2 {
		cmd := exec.Command("holdfast", append([]string{"doctor", "--json"}, flags...)...)
		cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+url)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, _ := cmd.Output() // The exit code is what counts.
		found, oldRelease, above := false, false, false
		for line := range strings.Lines(string(out)) {
			var f struct{ ID, Status, Found, Want, Remedy string }
			if err := json.Unmarshal([]byte(line), &f); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if f.ID == "etcd.version" {
				oldRelease = oldRelease || f.Status == "warn"
				continue
			}
			above = above || f.Status != "ok" && f.Status != "note"
			found = found || f.ID == check && f.Status == status && strings.Contains(strings.Join([]string{f.Found, f.Want, f.Remedy}, " "), says)
		}
		got := cmd.ProcessState.ExitCode()
		if oldRelease && code == 0 && got == 1 {
			got = 0
		}
		if check == "" {
			found = code > 2 && strings.Contains(errs.String(), says) || code == 0 && !above
		}
		if got != code || !found {
			t.Errorf("exit code %d, want %d, and %s %s with %q:\n%s%s", got, code, status, check, says, out, &errs)
		}
	}
}

// TestDoctor makes clusters ill in ten ways, and well in ten, and examines each twice. No key of an
// examination stays.
func TestDoctor(t *testing.T) {
	t.Parallel()
	alone, other, guarded := servers.StartEtcd(t), servers.StartEtcd(t), servers.StartEtcd(t, "--bcrypt-cost", "4")
	cluster := servers.StartEtcdCluster(t, 3)
	down := servers.StartEtcd(t)
	down.Kill()
	url := func(members ...*servers.Etcd) string {
		return "etcd://" + strings.Join(servers.EtcdAddrs(members), ",")
	}
	keys := func(member *servers.Etcd, user string) {
		t.Helper()
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{member.Addr}, Username: user, Password: strings.Repeat("secret", min(len(user), 1)), Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		all, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range all.Kvs {
			if strings.Contains(string(kv.Key), "holdfast-doctor") {
				t.Errorf("left: %q", kv.Key)
			}
		}
	}
	enableUsers(t, guarded)
	as := func(user string) string { return "etcd://" + user + ":secret@" + guarded.Addr }

	// Well.
	examineTwice(t, url(alone), 0, "", "", "")
	examineTwice(t, url(alone), 0, "etcd.members", "note", "a single member")
	examineTwice(t, url(alone), 0, "etcd.ttl", "note", "may end while a leader is elected", "--ttl", "5s")
	examineTwice(t, url(alone), 0, "etcd.ttl", "ok", "survives the election", "--ttl", "1m")
	examineTwice(t, url(alone), 0, "", "", "", "--no-probe")
	examineTwice(t, url(alone)+"/app", 0, "", "", "")
	examineTwice(t, url(cluster...), 0, "etcd.members", "ok", "of which 1 may fail")
	examineTwice(t, url(cluster[0]), 0, "etcd.member", "note", "not in the URL")
	examineTwice(t, url(cluster[2], cluster[0], cluster[1]), 0, "", "", "")
	examineTwice(t, as("writer"), 0, "etcd.rights", "ok", "may read and write")
	examineTwice(t, as("root"), 0, "", "", "")

	// Ill.
	examineTwice(t, as("reader"), 2, "etcd.rights", "fail", "grant-permission")
	examineTwice(t, as("stranger"), 2, "etcd.rights", "fail", "grant-permission")
	examineTwice(t, as("writer")+"/elsewhere", 2, "etcd.rights", "fail", "elsewhere/")
	examineTwice(t, strings.Replace(as("writer"), "secret", "wrong", 1), 69, "", "", "authentication failed")
	examineTwice(t, url(down), 69, "", "", "")
	examineTwice(t, url(alone, other), 2, "etcd.members", "fail", "two clusters", "--no-probe")
	other.RaiseNoSpace()
	examineTwice(t, url(other), 2, "etcd.space", "fail", "alarm disarm")
	other.EndNoSpace()
	examineTwice(t, url(other), 0, "etcd.space", "ok", "")
	learner := servers.StartEtcdLearner(t, cluster)
	examineTwice(t, url(append(cluster, learner)...), 2, "etcd.member", "fail", "member promote", "--no-probe")
	cluster[2].Kill()
	examineTwice(t, url(cluster...), 1, "etcd.member", "warn", "it cannot be reached")
	examineTwice(t, url(cluster[0], cluster[1]), 1, "etcd.members", "warn", "2 of 3 members serve")
	keys(alone, "")
	keys(other, "")
	keys(cluster[0], "")
	keys(guarded, "root")
	cluster[1].Kill()
	examineTwice(t, url(cluster...), 69, "", "", "")
}

// enableUsers makes users with the password "secret", whose rights are as their names, and root.
func enableUsers(t *testing.T, member *servers.Etcd) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{member.Addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	end := clientv3.GetPrefixRangeEnd(etcdstore.DefaultPrefix)
	for user, kind := range map[string]clientv3.PermissionType{
		"writer": clientv3.PermissionType(clientv3.PermReadWrite), "reader": clientv3.PermissionType(clientv3.PermRead), "stranger": -1, "root": -1,
	} {
		if user != "root" {
			_, err = client.RoleAdd(ctx, user)
			must(err)
		}
		if kind >= 0 {
			_, err = client.RoleGrantPermission(ctx, user, etcdstore.DefaultPrefix, end, kind)
			must(err)
		}
		_, err = client.UserAdd(ctx, user, "secret")
		must(err)
		_, err = client.UserGrantRole(ctx, user, user)
		must(err)
	}
	_, err = client.AuthEnable(ctx)
	must(err)
}
