//go:build unix

package torture_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/tools/internal/torture"
)

// naiveAdvisory takes advisory locks on a connection of its own, as if that were
// a session of the server. (The store of package pgstore refuses a pooler. If it is configured for
// a pooler of sessions, it cannot take a lock, since what it prepares in one session is already
// there in another.)
type naiveAdvisory struct {
	driver.Store // none: it has what torture needs
	url          string

	mu   sync.Mutex
	conn *pgx.Conn
	held map[string]string // owners, by name
}

func openNaiveAdvisory(_ context.Context, urls []string) (driver.Store, error) {
	return &naiveAdvisory{url: urls[0], held: map[string]string{}}, nil
}

func onPooler(t *testing.T) torture.Options {
	return unharmed(options(t, servers.StartPgBouncer(t, servers.StartPostgres(t)).URL("postgres")))
}

func onPostgres(t *testing.T) torture.Options {
	return unharmed(options(t, servers.StartPostgres(t).URL("postgres")))
}

// unharmed is a stage without faults, of which naiveAdvisory stands few.
func unharmed(o torture.Options) torture.Options {
	o.TTL, o.Faults = biteTTL, nil
	return o
}

// query sends a statement as text: what is prepared does not outlive a transaction.
// The end of a caller's ctx must not end the session, which has the locks of other callers.
func (s *naiveAdvisory) query(statement, name string) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.conn == nil || s.conn.IsClosed() {
		if s.conn, err = pgx.Connect(ctx, s.url); err != nil {
			return false, err
		}
		s.held = map[string]string{}
	}
	err = s.conn.QueryRow(ctx, statement, pgx.QueryExecModeSimpleProtocol, name).Scan(&yes)
	return yes, err
}

func (s *naiveAdvisory) Acquire(_ context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner := s.held[req.Name]; owner != "" {
		return driver.AcquireResult{Granted: owner == req.Owner}, nil
	}
	yes, err := s.query("SELECT pg_try_advisory_lock(hashtext($1))", req.Name)
	if yes {
		s.held[req.Name] = req.Owner
	}
	return driver.AcquireResult{Granted: yes}, err
}

func (s *naiveAdvisory) Renew(_ context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.query("SELECT $1 <> ''", "ping")
	outcomes := make([]driver.RenewOutcome, len(reqs))
	for i, req := range reqs {
		switch {
		case s.held[req.Name] != req.Owner:
			outcomes[i] = driver.RenewLost
		case err == nil:
			outcomes[i] = driver.Renewed
		}
	}
	return outcomes, err
}

func (s *naiveAdvisory) Release(_ context.Context, req driver.ReleaseRequest) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[req.Name] != req.Owner {
		return false, nil
	}
	delete(s.held, req.Name)
	return s.query("SELECT pg_advisory_unlock(hashtext($1))", req.Name)
}

func (s *naiveAdvisory) Lookup(context.Context, string) (driver.Record, bool, error) {
	return driver.Record{}, false, driver.ErrUnsupported
}

func (s *naiveAdvisory) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store: "naive advisory", Scope: driver.ScopeNetwork,
		HolderCrash: driver.RecoveryAtOnce, Restart: driver.FateForgotten, Failover: driver.FateForgotten,
	}
}

func (s *naiveAdvisory) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil
	}
	return s.conn.Close(context.Background())
}
