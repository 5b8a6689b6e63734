package filestore

import (
	"context"
	"errors"
	"io/fs"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store].
func (s direct) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkRequest(ctx, req.Name); err != nil {
		return false, err
	}
	s.removeWaiter(req.Name, req.Owner)
	f, err := s.openRecord(ctx, req.Name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if !f.rec.ownedBy(req.Owner) || !f.rec.isUnexpired(&s.host) {
		return false, nil
	}
	if f.rec.State == stateKept && req.Keep <= 0 {
		return false, nil
	}
	after := f.rec.freed()
	if req.Keep > 0 {
		after = f.rec.keptRecord()
		after.setExpiry(req.Keep, &s.host)
	}
	if err := f.write(after); err != nil {
		return false, err
	}
	return true, nil
}

// keptRecord returns r after a release that keeps the name. The owner stays, so that the same
// release is recognized when it is sent again.
func (r *record) keptRecord() record {
	return record{Name: r.Name, State: stateKept, Token: r.Token, Last: r.Last, Since: r.Since, Owner: r.Owner}
}

// Break implements [driver.Store].
func (s direct) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	if err := s.checkRequest(ctx, req.Name); err != nil {
		return driver.Record{}, false, err
	}
	f, err := s.openRecord(ctx, req.Name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Record{}, false, nil
	}
	if err != nil {
		return driver.Record{}, false, err
	}
	defer f.Close()
	if !s.isHeld(&f.rec) || req.Token != 0 && f.rec.Token != req.Token {
		return driver.Record{}, false, nil
	}
	broken := f.rec.publicRecord(&s.host)
	if err := f.write(f.rec.freed()); err != nil {
		return driver.Record{}, false, err
	}
	return broken, true, nil
}
