//go:build unix

package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// undoing is a pool whose server undoes the first statement after it has sent a
// row, as one with serializable transactions does at a commit, and finds nothing
// the second time.
type undoing struct {
	pool
	sent int
}

func (p *undoing) take(context.Context) (conn, error) { return p, nil }
func (p *undoing) free()                              {}
func (p *undoing) canListen() bool                    { return false }

func (p *undoing) query(_ context.Context, _ bool, _ string, _ []any, row func(scanner) error) error {
	p.sent++
	if p.sent > 1 {
		return nil
	}
	if err := row(func(columns ...any) error {
		if token, ok := columns[0].(*int64); ok {
			*token = 1
		}
		return nil
	}); err != nil {
		return err
	}
	return &pgconn.PgError{Severity: "ERROR", Code: "40001"}
}

// What came with a statement that was undone is not taken for an answer.
func TestUndoneRowsAreForgotten(t *testing.T) {
	t.Parallel()
	open := func() *Store { return newStore(&undoing{}, nil) }
	if _, found, err := open().Lookup(t.Context(), "name"); found || err != nil {
		t.Errorf("Lookup: %v, %v, want nothing", found, err)
	}
	for rec, err := range open().List(t.Context(), "") {
		t.Errorf("List yields %+v, %v", rec, err)
	}
	if ended, err := open().Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"}); ended || err != nil {
		t.Errorf("Release: %v, %v, want nothing", ended, err)
	}
	gone := &leaver{name: "name", owner: "owner", done: make(chan struct{})}
	if err := open().releaseTogether([]*leaver{gone}); gone.ended || err != nil {
		t.Errorf("Release together with others: %v, %v, want nothing", gone.ended, err)
	}
	s := open()
	s.seen.free("name")
	if res, err := s.Acquire(t.Context(), request("name", time.Minute)); res.Granted || err == nil {
		t.Errorf("Acquire: %+v, %v, want no grant", res, err)
	}
}
