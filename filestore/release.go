package filestore

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Release implements [olddriver.Store].
func (s direct) Release(ctx context.Context, req olddriver.ReleaseRequest) (bool, error) {
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
	if f.rec.isWaiter(req.Owner, &s.host) {
		f.rec.setWaiter("", 0, "")
		return false, f.write(f.rec.with(nil, nil, &s.host))
	}
	own := f.rec.entryOf(req.Owner, &s.host)
	if own == nil || own.State == stateKept && req.Keep <= 0 {
		return false, nil
	}
	var after *record
	if req.Keep > 0 {
		kept := own.keptRecord()
		kept.setExpiry(req.Keep, &s.host)
		after = &kept
	}
	if err := f.write(f.rec.with(own, after, &s.host)); err != nil {
		return false, err
	}
	return true, nil
}

// keptRecord returns r after a release that keeps the name. The owner stays, so that the same
// release is recognized when it is sent again.
func (r *record) keptRecord() record {
	return record{
		Name: r.Name, State: stateKept, Token: r.Token, Last: r.Last, Since: r.Since, Owner: r.Owner,
		Limit: r.Limit,
	}
}

// Break implements [olddriver.Store].
func (s direct) Break(ctx context.Context, req olddriver.BreakRequest) (olddriver.Record, bool, error) {
	if err := s.checkRequest(ctx, req.Name); err != nil {
		return olddriver.Record{}, false, err
	}
	f, err := s.openRecord(ctx, req.Name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return olddriver.Record{}, false, nil
	}
	if err != nil {
		return olddriver.Record{}, false, err
	}
	defer f.Close()
	ended := s.liveHolds(&f.rec)
	if req.Token != 0 {
		ended = slices.DeleteFunc(ended, func(e *record) bool { return e.Token != req.Token })
	}
	if len(ended) == 0 {
		return olddriver.Record{}, false, nil
	}
	broken := s.describeHolds(ended)
	for _, e := range ended {
		e.State = stateFree
	}
	if err := f.write(f.rec.with(nil, nil, &s.host)); err != nil {
		return olddriver.Record{}, false, err
	}
	return broken, true, nil
}
