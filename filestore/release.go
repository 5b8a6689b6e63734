package filestore

import (
	"context"
	"errors"
	"io/fs"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.admit(ctx, req.Name); err != nil {
		return false, err
	}
	e, err := s.find(ctx, req.Name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer e.close()
	if !e.rec.ownedBy(req.Owner) || !e.rec.lasts(&s.host) {
		return false, nil
	}
	if e.rec.State == stateKept && req.Keep <= 0 {
		return false, nil
	}
	after := e.rec.free()
	if req.Keep > 0 {
		after = e.rec.kept()
		after.extend(req.Keep, &s.host)
	}
	if err := e.write(after); err != nil {
		return false, err
	}
	return true, nil
}

// kept is r after a release that keeps the name. The owner stays, so that the
// same release can be recognised when it is sent again.
func (r *record) kept() record {
	return record{Name: r.Name, State: stateKept, Token: r.Token, Since: r.Since, Owner: r.Owner}
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string) (driver.Record, bool, error) {
	if err := s.admit(ctx, name); err != nil {
		return driver.Record{}, false, err
	}
	e, err := s.find(ctx, name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Record{}, false, nil
	}
	if err != nil {
		return driver.Record{}, false, err
	}
	defer e.close()
	if !s.inTheWay(&e.rec) {
		return driver.Record{}, false, nil
	}
	broken := e.rec.public(&s.host)
	if err := e.write(e.rec.free()); err != nil {
		return driver.Record{}, false, err
	}
	return broken, true, nil
}
