package pgstore

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// pageSize is how many records are fetched at once. No connection is kept while the caller
// processes them.
const pageSize = 1000

// List implements [olddriver.Store].
func (s *engine) List(ctx context.Context, prefix string) iter.Seq2[olddriver.Record, error] {
	return func(yield func(olddriver.Record, error) bool) {
		after := ""
		for {
			records, err := s.listPage(ctx, prefix, after)
			if err != nil {
				yield(olddriver.Record{}, err)
				return
			}
			for _, rec := range records {
				if !yield(rec, nil) {
					return
				}
			}
			if len(records) < pageSize {
				return
			}
			after = records[pageSize-1].Name
		}
	}
}

// listPage fetches the records with names after the given one.
func (s *engine) listPage(ctx context.Context, prefix, after string) ([]olddriver.Record, error) {
	var records []olddriver.Record
	err := s.queryRows(ctx, s.queries.list, []any{after, prefix, int64(pageSize)}, func() { records = nil }, func(scan scanner) error {
		var name string
		row := recordRow{}
		if err := scan(row.columns(&name, &row.waiting, &row.shares)...); err != nil {
			return err
		}
		records = append(records, row.toRecord(name))
		return nil
	})
	return records, err
}
