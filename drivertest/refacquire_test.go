package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *refStore) Acquire(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	if ctx.Err() != nil && s.w.has(endedCallsApply) {
		_, _ = s.Acquire(context.WithoutCancel(ctx), req)
		return res, driver.ErrNotApplied
	}
	if err := s.begin(ctx); err != nil {
		if errors.Is(err, errLink) && s.w.has(lostMeansAnswered) {
			return res, nil
		}
		return res, s.leaky(err, req.Owner)
	}
	defer func() {
		if lost := s.end(); lost != nil {
			res, err = driver.AcquireResult{}, lost
		}
	}()
	w := s.w
	if req.Detached && (!w.claims.Detached && !w.has(underclaimsDetached) || w.has(overclaimsDetached)) {
		if w.has(refusedDetachedTakes) {
			s.grant(req)
		}
		return res, driver.ErrUnsupported
	}
	if w.has(changesMetadata) && req.Metadata != nil {
		req.Metadata["store"] = "was here"
	}
	e := s.at(req.Name)
	switch {
	case e == nil && w.has(grantsNothing):
		return res, nil
	case e == nil:
		if w.has(checksThenSets) {
			w.mu.Unlock()
			time.Sleep(time.Microsecond)
			w.mu.Lock()
		}
		return s.grant(req), nil
	case s.repeats(e, req.Owner):
		return s.repeat(e, req), nil
	}
	s.disturb(e, req)
	return s.refuse(e)
}

// repeats reports whether an Acquire by owner is a repetition.
func (s *refStore) repeats(e *entry, owner string) bool {
	w := s.w
	if e.record.Kept && !w.has(keepLetsOwnerTake) || w.has(forgetsRepetitions) {
		return false
	}
	return w.owns(e, owner) || w.has(nobodyIsEverybody) && owner == ""
}

func (s *refStore) grant(req driver.AcquireRequest) driver.AcquireResult {
	w := s.w
	key := w.key(req.Name)
	e := &entry{owner: req.Owner, until: s.expiry(req.TTL), takenBy: s, detached: req.Detached}
	if req.Detached && w.has(detachedNeverExpires) {
		e.until = e.until.Add(long)
	}
	e.record = driver.Record{Name: req.Name, Holder: req.Holder, Since: s.now(), Token: s.token(key, req.Floor)}
	if w.claims.Metadata && !w.has(dropsMetadata) || w.has(keepsMetadataUnclaimed) {
		e.record.Metadata = req.Metadata
	}
	if old := w.left[key]; old != nil {
		if w.has(inheritsMetadata) && req.Metadata == nil {
			e.record.Metadata = old.record.Metadata
		}
		if w.has(inheritsExpiry) && old.until.After(e.until) {
			e.until = old.until
		}
	}
	w.entries[key] = e
	return driver.AcquireResult{Granted: true, Token: e.record.Token}
}

func (s *refStore) repeat(e *entry, req driver.AcquireRequest) driver.AcquireResult {
	w := s.w
	until := s.expiry(req.TTL)
	switch {
	case w.has(repetitionDoesNotProlong):
	case until.After(e.until), w.has(repetitionShortens):
		e.until = until
	}
	if w.has(repetitionChangesToken) {
		e.record.Token = s.token(w.key(req.Name), 0)
	}
	if w.has(repetitionTakesFloor) {
		e.record.Token = max(e.record.Token, req.Floor)
	}
	return driver.AcquireResult{Granted: true, Token: e.record.Token}
}

// token makes the token of a grant.
func (s *refStore) token(key string, floor int64) int64 {
	w := s.w
	if !w.claims.Fencing && !w.has(tokensUnclaimed) || w.has(overclaimsFencing) {
		return 0
	}
	if w.has(ignoresFloor) {
		floor = 0
	}
	token := max(w.last[key]+1, s.now().UnixMicro(), floor)
	switch {
	case w.has(forgetsFloor):
		token = max(w.last[key]+1, s.now().UnixMicro())
		w.last[key] = token
		return max(token, floor)
	case w.has(tokensFallAtExpiry) && w.entries[key] != nil, w.has(tokensFallAtRelease) && w.entries[key] == nil && w.last[key] > 0,
		w.has(tokensFallAtRestart) && w.last[key] == 0:
		token = max(floor, w.last[key]-1, 1)
	case w.has(tokensTooLarge):
		token += driver.MaxToken
	case w.has(tokensPerStore):
		s.grants++
		token = max(s.grants, floor)
	}
	w.last[key] = token
	return token
}

// disturb is what a refused attempt must not do.
func (s *refStore) disturb(e *entry, req driver.AcquireRequest) {
	w := s.w
	switch {
	case w.has(refusalProlongs):
		e.until = e.until.Add(req.TTL)
	case w.has(refusalRaisesToken):
		w.last[w.key(req.Name)] = max(w.last[w.key(req.Name)], req.Floor)
	case w.has(refusalTakesOver):
		e.owner = req.Owner
	}
}

func (s *refStore) refuse(e *entry) (driver.AcquireResult, error) {
	w := s.w
	rec := s.record(e)
	switch {
	case w.has(busyIsAnError):
		return driver.AcquireResult{}, errors.New("the name is held")
	case w.has(refusalLeaksOwner):
		rec.Holder += e.owner
	case w.has(refusalSaysNothing):
		rec = driver.Record{}
	case w.has(refusalNamesOthers):
		rec.Holder = "somebody"
	}
	return driver.AcquireResult{Held: rec}, nil
}

// leaky shows the owner in an error, if that is the bug.
func (s *refStore) leaky(err error, owner string) error {
	if s.w.has(errorsLeakOwner) {
		return fmt.Errorf("for %s: %w", owner, err)
	}
	return err
}
