//go:build unix

package pgstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// With RequireStandby, a statement whose wait for the standby somebody cancels, or
// ends together with the session, is never granted, and neither is it said to have
// had no effect: the server has committed it, and the standby need not have it.
func TestStandbyWaitCancelled(t *testing.T) {
	t.Parallel()
	primary := servers.StartPostgres(t)
	url := primary.URL("postgres")
	migrated(t, url, nil)
	pgtest.Execute(t, url, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	pgtest.Execute(t, url, "SELECT pg_reload_conf()")
	admin := pgtest.OpenPool(t, url)
	for what, open := range map[string]func() *Store{
		"pgxpool": func() *Store { return New(pgtest.OpenPool(t, url), &Options{RequireStandby: true}) },
		"silent": func() *Store {
			return New(pgtest.OpenPool(t, url, "client_min_messages=error"), &Options{RequireStandby: true})
		},
		"database/sql": func() *Store { return NewDB(pgtest.OpenSQL(t, url), &Options{RequireStandby: true}) },
	} {
		t.Run(what, func(t *testing.T) {
			s := open()
			t.Cleanup(func() { _ = s.Close() })
			fast := New(pgtest.OpenPool(t, url), &Options{SynchronousCommit: "local"})
			t.Cleanup(func() { _ = fast.Close() })
			req := grant(t, fast, what+" held", time.Hour)
			kept := grant(t, fast, what+" kept", time.Hour)
			broken := grant(t, fast, what+" broken", time.Hour)
			for _, end := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
				unknown := func(verb string, call func(ctx context.Context) (done bool, err error)) {
					t.Helper()
					ended := make(chan struct{})
					var done bool
					var err error
					go func() {
						defer close(ended)
						done, err = call(t.Context())
					}()
					pgtest.Eventually(t, "statement that waits for the standby, or an end", func() bool {
						select {
						case <-ended:
							return true
						default:
							return pgtest.QueryValue[int](t, admin, "SELECT count("+end+"(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0
						}
					})
					select {
					case <-ended:
					case <-time.After(pgtest.Bound):
						t.Fatalf("%s goes on after %s", verb, end)
					}
					if done || err == nil || driver.IsNotApplied(err) {
						t.Errorf("%s whose wait for the standby was ended by %s: %v, %v, want an error that leaves it open", verb, end, done, err)
					}
				}
				name := what + " " + end
				unknown("Acquire", func(ctx context.Context) (bool, error) {
					res, err := s.Acquire(ctx, pgtest.Request(name, time.Hour))
					return res.Granted, err
				})
				unknown("Renew", func(ctx context.Context) (bool, error) {
					outcomes, err := s.Renew(ctx, pgtest.Renewals(req))
					return len(outcomes) > 0 && outcomes[0] != driver.RenewUnknown, err
				})
				// Places wait for no standby. What admits them, and what a holder relies on, does.
				held := grant(t, fast, name+", awaited", time.Hour)
				first, second := queueUp(t, s, held.Name, time.Hour), queueUp(t, s, held.Name, time.Hour)
				release(t, fast, held)
				first.Claim = true
				unknown("Claim", func(ctx context.Context) (bool, error) {
					res, err := s.Acquire(ctx, first)
					return res.Granted, err
				})
				unknown("Renew of a place that was admitted", func(ctx context.Context) (bool, error) {
					outcomes, err := s.Renew(ctx, pgtest.Renewals(first))
					return len(outcomes) > 0 && outcomes[0] != driver.RenewUnknown, err
				})
				unknown("Release that admits", func(ctx context.Context) (bool, error) {
					return s.Release(ctx, driver.ReleaseRequest{Name: first.Name, Owner: first.Owner})
				})
				if res := claim(t, fast, second); !res.Granted {
					t.Errorf("the next place after a release that no standby confirms: %+v", res)
				}
				unknown("Release with Keep", func(ctx context.Context) (bool, error) {
					return s.Release(ctx, driver.ReleaseRequest{Name: kept.Name, Owner: kept.Owner, Keep: time.Hour})
				})
			}
			ended := make(chan error, 1)
			go func() {
				_, _, err := s.Break(t.Context(), driver.BreakRequest{Name: broken.Name})
				ended <- err
			}()
			pgtest.Eventually(t, "Break that waits for the standby", func() bool {
				return pgtest.QueryValue[int](t, admin, "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0
			})
			if err := <-ended; err == nil || driver.IsNotApplied(err) {
				t.Errorf("Break whose wait for the standby was cancelled: %v, want an error that leaves it open", err)
			}
		})
	}
}

// A connection that has shown one warning is as good as before.
func TestWarningIsOfOneStatement(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	url := server.URL("postgres")
	migrated(t, url, nil)
	standby := servers.StartPostgresStandby(t, server, "standby")
	pgtest.Execute(t, url, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	pgtest.Execute(t, url, "SELECT pg_reload_conf()")
	s := New(pgtest.OpenPool(t, url, "pool_max_conns=1"), &Options{RequireStandby: true})
	t.Cleanup(func() { _ = s.Close() })
	pgtest.Eventually(t, "synchronous standby", func() bool {
		return pgtest.QueryValue[int](t, pgtest.OpenPool(t, url), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
	})
	err := s.execQuery(t.Context(), "DO $$ BEGIN RAISE WARNING 'a word'; END $$")
	if !errors.Is(err, errWarned) {
		t.Errorf("a statement with a warning: %v, want errWarned", err)
	}
	release(t, s, grant(t, s, "name", time.Minute))
	_ = standby
}

// Without pgx no warning is seen: RequireStandby is refused.
func TestStandbyNeedsPgx(t *testing.T) {
	t.Parallel()
	sql.Register("another driver", nothingDriver{})
	db, err := sql.Open("another driver", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s := NewDB(db, &Options{RequireStandby: true})
	t.Cleanup(func() { _ = s.Close() })
	fails(t, s, driver.ErrInvalid, "pgx", verbs...)
}

// A nothingDriver opens no connection.
type nothingDriver struct{}

func (nothingDriver) Open(string) (sqldriver.Conn, error) {
	return nil, errors.New("there is no database")
}
