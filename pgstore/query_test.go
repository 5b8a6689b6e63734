//go:build unix

package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// undoing is a pool whose server undoes the first statement after it has sent a
// row, as one with serializable transactions does at a commit, and finds nothing
// the second time.
type undoing struct {
	pool
	sent int
}

func (p *undoing) acquireConn(context.Context) (conn, error) { return p, nil }
func (p *undoing) releaseConn()                              {}
func (p *undoing) rawConn() *pgx.Conn                        { return nil }

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
	open := func() *engine { return newEngine(&undoing{}, nil) }
	if _, found, err := open().Lookup(t.Context(), "name"); found || err != nil {
		t.Errorf("Lookup: %v, %v, want nothing", found, err)
	}
	for rec, err := range open().List(t.Context(), "") {
		t.Errorf("List yields %+v, %v", rec, err)
	}
	if ended, err := open().Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: "owner"}); ended || err != nil {
		t.Errorf("Release: %v, %v, want nothing", ended, err)
	}
	gone := &rowChange{name: "name", owner: "owner"}
	if err := open().changeTogether(t.Context(), []*rowChange{gone}, nil); gone.decided || err != nil {
		t.Errorf("Release together with others: %+v, %v, want nothing", gone, err)
	}
	s := open()
	s.nameCache.set("name", stateFree, 0)
	if res, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute)); res.Granted || err == nil {
		t.Errorf("Acquire: %+v, %v, want no grant", res, err)
	}
}
