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
	rf, err := s.openLocked(ctx, req.Name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer rf.close()
	if !rf.rec.ownedBy(req.Owner) || !rf.rec.isUnexpired(&s.host) {
		return false, nil
	}
	if rf.rec.State == stateKept && req.Keep <= 0 {
		return false, nil
	}
	after := rf.rec.freed()
	if req.Keep > 0 {
		after = rf.rec.keptRecord()
		after.setExpiry(req.Keep, &s.host)
	}
	if err := rf.write(after); err != nil {
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
	rf, err := s.openLocked(ctx, req.Name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Record{}, false, nil
	}
	if err != nil {
		return driver.Record{}, false, err
	}
	defer rf.close()
	if !s.isHeld(&rf.rec) || req.Token != 0 && rf.rec.Token != req.Token {
		return driver.Record{}, false, nil
	}
	broken := rf.rec.publicRecord(&s.host)
	if err := rf.write(rf.rec.freed()); err != nil {
		return driver.Record{}, false, err
	}
	return broken, true, nil
}
