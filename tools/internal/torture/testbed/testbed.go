//go:build unix

// Package testbed starts servers for package torture, which injects faults in them, and a store on
// these servers that promises to survive the faults.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/tools/internal/torture"
)

// A Testbed is a store, and the servers that it runs on.
type Testbed struct {
	Stores   []string         // URLs: one, or the nodes of a quorum
	Servers  []torture.Server // of these, in that order
	Recovery time.Duration    // how long a server refuses locks after a restart
	Leader   func() int       // the index of the server that leads the others, nil if none does

	host servers.Host
}

// quorumNodes is the number of nodes of a quorum.
const quorumNodes = 5

// setupFuncs contains the set-up function of each kind of Testbed.
var setupFuncs = map[string]func(t *Testbed, ttl time.Duration) error{
	"memory": func(t *Testbed, _ time.Duration) error {
		t.Stores = []string{"memory:"}
		return nil
	},
	"file": func(t *Testbed, _ time.Duration) error {
		t.Stores = []string{"file:" + t.host.TempDir()}
		return nil
	},
	"redis":             func(t *Testbed, ttl time.Duration) error { return t.startRedis(1, ttl) },
	"redis-failover":    (*Testbed).startRedisWithReplica,
	"redlock":           func(t *Testbed, ttl time.Duration) error { return t.startRedis(quorumNodes, ttl) },
	"postgres":          func(t *Testbed, _ time.Duration) error { return t.startPostgres("") },
	"etcd":              (*Testbed).startEtcd,
	"s3":                (*Testbed).startS3,
	"postgres-advisory": func(t *Testbed, _ time.Duration) error { return t.startPostgres("postgres+advisory") },
}

// Kinds returns the kinds that Start accepts.
func Kinds() []string {
	return []string{"memory", "file", "redis", "redis-failover", "redlock", "postgres", "postgres-advisory", "etcd", "s3"}
}

// Start starts the servers of a store of a kind, for locks with this TTL. They run until Close.
func Start(kind string, ttl time.Duration) (*Testbed, error) {
	t := &Testbed{}
	setUp, ok := setupFuncs[kind]
	if !ok {
		return nil, fmt.Errorf("there is no store %q to be started", kind)
	}
	var err error
	fatal := t.host.Do(func() { err = setUp(t, ttl) })
	if err = errors.Join(fatal, err); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close ends the servers and removes their data.
func (t *Testbed) Close() error { return t.host.Close() }

// startRedis starts Redis servers that write everything to disk before they reply, so that they
// survive restarts with their data. For restarts without data, the store has a server refuse locks
// until those that it may have forgotten have run out.
func (t *Testbed) startRedis(n int, ttl time.Duration) error {
	for _, r := range servers.StartRedises(&t.host, n, "--appendonly", "yes", "--appendfsync", "always") {
		t.Stores = append(t.Stores, fmt.Sprintf("redis://%s?restart_guard=%v", r.Addr, ttl))
		t.addServer(r, r.RestartEmpty)
	}
	t.Recovery = ttl
	return nil
}

// startPostgres starts a PostgreSQL and creates what the store needs in its database.
func (t *Testbed) startPostgres(scheme string) error {
	p := servers.StartPostgres(&t.host)
	url := p.URL("postgres")
	if scheme != "" {
		url = strings.Replace(url, "postgres:", scheme+":", 1) + "&tokens=holdfast_tokens"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := holdfast.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer client.Close() // it holds nothing
	switch store := client.Store().(type) {
	case *pgstore.Store:
		err = store.Migrate(ctx)
	case *advisory.Store:
		err = store.Migrate(ctx)
	}
	t.Stores = []string{url}
	t.addServer(p, nil)
	return err
}

// startEtcd starts a cluster of three members. It needs no client of etcd: a program that links the
// store opens it.
func (t *Testbed) startEtcd(time.Duration) error {
	members := servers.StartEtcdCluster(&t.host, 3)
	for _, m := range members {
		t.addServer(m, nil)
	}
	t.Leader = func() int { return max(0, slices.IndexFunc(members, (*servers.Etcd).Leads)) }
	t.Stores = []string{"etcd://" + strings.Join(servers.EtcdAddrs(members), ",")}
	return nil
}

// startS3 starts a server of S3, and sets its credentials for this process and its children.
func (t *Testbed) startS3(time.Duration) error {
	s := servers.StartS3(&t.host)
	t.addServer(s, nil)
	t.Stores = []string{"s3://" + servers.S3Bucket + "?endpoint=http://" + s.Addr}
	return errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", servers.S3User), os.Setenv("AWS_SECRET_ACCESS_KEY", servers.S3Password))
}

// addServer adds a server of package servers.
func (t *Testbed) addServer(m interface {
	Pause()
	Resume()
	Restart()
}, forget func(),
) {
	call := func(f func()) func() error { return func() error { return t.host.Do(f) } }
	server := torture.Server{Pause: call(m.Pause), Resume: call(m.Resume), Restart: call(m.Restart)}
	if forget != nil {
		server.Forget = call(forget)
	}
	t.Servers = append(t.Servers, server)
}
