//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A scenario is one question that is put to several contenders.
type scenario struct {
	name    string // of -only, and of the chart
	group   string // the heading that it is under
	title   string
	about   string
	metrics []result.Metric
	kinds   []contend.Kind
	ttl     time.Duration // 0 means defaultTTL

	// nodes is how many Redis servers there are.
	nodes int

	// postgres: there is a PostgreSQL server.
	postgres bool

	// measure does it once. Everything that it opens it closes.
	measure func(s *scene, k contend.Kind) (result.Sample, error)
}

// patience is for how long a contender is waited for in one measurement, beyond
// every time that it should take.
const patience = 20 * time.Second

var errStuck = fmt.Errorf("it has not come to an end after %v", patience)

// defaultTTL is long enough to play no part where it is not the point.
const defaultTTL = 10 * time.Second

// A scene is where a scenario is measured: its servers, and how long to look.
type scene struct {
	scenario scenario
	tb       testing.TB
	redis    []*servers.Redis
	pg       *servers.Postgres
	span     time.Duration // of one measurement
}

// set starts the servers of a scenario.
func set(tb testing.TB, sc scenario, span time.Duration) (*scene, error) {
	s := &scene{scenario: sc, tb: tb, span: span}
	if s.scenario.ttl == 0 {
		s.scenario.ttl = defaultTTL
	}
	s.redis = servers.StartRedises(tb, sc.nodes)
	if sc.postgres {
		return s, s.startPostgres()
	}
	return s, nil
}

// clear makes the servers empty, so that no contender has to live with what
// another has left.
func (s *scene) clear() {
	for _, server := range s.redis {
		server.Do("FLUSHALL")
	}
}

// versions returns the versions of the servers.
func (s *scene) versions() map[string]string {
	versions := map[string]string{}
	if len(s.redis) > 0 {
		versions["redis-server"] = infoText(s.redis[0], "redis_version")
	}
	if s.pg != nil {
		var version string
		if err := s.ask("SHOW server_version", &version); err == nil {
			versions["PostgreSQL"] = version
		}
	}
	return versions
}

func (s *scene) options() contend.Options {
	o := contend.Options{TTL: s.scenario.ttl}
	for _, server := range s.redis {
		o.Servers = append(o.Servers, server.Addr)
	}
	if s.pg != nil {
		o.Servers = append(o.Servers, s.pg.URL("postgres"))
	}
	return o
}

// with opens a contender for the time of a call.
func (s *scene) with(k contend.Kind, use func(ctx context.Context, c contend.Contender) error) error {
	c, err := k.Open(s.options())
	if err != nil {
		return fmt.Errorf("open %s: %w", k.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errStuck)
	defer cancel()
	err = use(ctx, c)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(errStuck, err)
	}
	return errors.Join(err, c.Close())
}

// scenarios lists them in the order of the page.
func scenarios() []scenario {
	return []scenario{
		uncontended(1), uncontended(64), uncontended(512),
		contendedGoroutines(), contendedProcesses(),
		handover(), idleWaiters(), crash(0), crash(300_000),
		heldLocks(),
		quorumThroughput(1), quorumThroughput(64), hungNode(false), hungNode(true),
		postgresLease(1), postgresLease(16), postgresLease(64),
		postgresAdvisory(1), postgresAdvisory(16), postgresAdvisory(64),
		postgresContended(), postgresHandover(),
	}
}
