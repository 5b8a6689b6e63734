//go:build unix

// Package arena starts servers of its own for package torture to harm, and a
// store on them that promises to survive what is done.
package arena

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/torture"
	"github.com/holdfast-go/holdfast/pgstore"
)

// An Arena is a store, and the servers that it is on.
type Arena struct {
	Stores   []string         // URLs: one, or the nodes of a quorum
	Servers  []torture.Server // of these, in that order
	Recovery time.Duration    // how long a server refuses locks when it is there again
	Setup    string           // the servers' programs, versions and settings

	host servers.Host
}

// nodes is of how many nodes a quorum is made.
const nodes = 5

// kinds are what an Arena can be, and how it is set up.
var kinds = map[string]func(a *Arena, ttl time.Duration) error{
	"memory": func(a *Arena, _ time.Duration) error {
		a.Stores = []string{"memory:"}
		return nil
	},
	"file": func(a *Arena, _ time.Duration) error {
		a.Stores = []string{"file:" + a.host.TempDir()}
		return nil
	},
	"redis":             func(a *Arena, ttl time.Duration) error { return a.redis(1, ttl) },
	"redlock":           func(a *Arena, ttl time.Duration) error { return a.redis(nodes, ttl) },
	"postgres":          func(a *Arena, _ time.Duration) error { return a.postgres("") },
	"postgres-advisory": func(a *Arena, _ time.Duration) error { return a.postgres("postgres+advisory") },
}

// Kinds are the names of what Start can start.
func Kinds() []string {
	return []string{"memory", "file", "redis", "redlock", "postgres", "postgres-advisory"}
}

// Start starts the servers of a store of a kind, for locks with this TTL. They
// run until Close.
func Start(kind string, ttl time.Duration) (*Arena, error) {
	a := &Arena{}
	setUp, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("there is no store %q to be started", kind)
	}
	var err error
	fatal := a.host.Do(func() { err = setUp(a, ttl) })
	if err = errors.Join(fatal, err); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Close ends the servers and removes their data.
func (a *Arena) Close() error { return a.host.Close() }

// redis starts Redis servers which have everything on disk before they answer,
// for restarts with their data; and for restarts without, the store lets a server
// abstain until the locks that it may have forgotten have run out.
func (a *Arena) redis(n int, ttl time.Duration) error {
	for _, r := range servers.StartRedises(&a.host, n, "--appendonly", "yes", "--appendfsync", "always") {
		a.Stores = append(a.Stores, fmt.Sprintf("redis://%s?restart_guard=%v", r.Addr, ttl))
		a.add(r, r.RestartEmpty)
		a.Setup = fmt.Sprintf("%d x %s; appendfsync always, restart_guard=%v", n, release(r.Version(), "v="), ttl)
	}
	a.Recovery = ttl
	return nil
}

// postgres starts a PostgreSQL with what the store needs in its database.
func (a *Arena) postgres(scheme string) error {
	p := servers.StartPostgres(&a.host)
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
	case *pgstore.AdvisoryStore:
		err = store.Migrate(ctx)
	}
	a.Stores = []string{url}
	a.add(p, nil)
	a.Setup = release(p.Version(), "(PostgreSQL) ")
	return err
}

// release shortens what a program says of its version.
func release(text, mark string) string {
	name, rest, _ := strings.Cut(text, " ")
	_, version, _ := strings.Cut(rest, mark)
	version, _, _ = strings.Cut(version, " ")
	return name + " " + version
}

// A machine is a server of package servers.
type machine interface {
	Pause()
	Resume()
	Restart()
}

// A server is a machine, for package torture.
type server struct {
	machine
	host  *servers.Host
	empty func() // Restart without data, nil if that makes no sense
}

func (a *Arena) add(m machine, empty func()) {
	a.Servers = append(a.Servers, &server{m, &a.host, empty})
}

// Can implements [torture.Server].
func (s *server) Can(f torture.Fault) bool {
	return f != torture.ServerForget || s.empty != nil
}

// Pause implements [torture.Server].
func (s *server) Pause() error { return s.host.Do(s.machine.Pause) }

// Resume implements [torture.Server].
func (s *server) Resume() error { return s.host.Do(s.machine.Resume) }

// Restart implements [torture.Server].
func (s *server) Restart(empty bool) error {
	if empty {
		return s.host.Do(s.empty)
	}
	return s.host.Do(s.machine.Restart)
}
