package filestore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Tokens follow a clock of microseconds since 1970 that never steps back. Each boot sets it once,
// to the time of day but above all tokens of earlier boots. Then it advances with the boot clock.
// So a record can be deleted once the clock has passed its last token.
//
// The upper bound of all tokens of earlier boots is a mark in the tokens file, which survives a
// power loss. The mark is raised well ahead of the clock, and a token above it is granted only
// after it has been raised.

// markLead is how far ahead of the tokens the mark is raised. It is also the time from one fsync to
// the next.
const markLead = int64(10 * time.Minute / time.Microsecond)

// tokenState is a Store's cache of the tokens file. It is valid for this boot: the clock does not
// change, and the mark only grows.
type tokenState struct {
	mu    sync.Mutex
	clock tokenClock
	mark  int64
}

// A tokenClock is the token clock of one boot. It was at Micros when the boot clock was at At.
type tokenClock struct {
	Boot   string        `json:"boot"`
	Micros int64         `json:"clock_us"`
	At     time.Duration `json:"at_ns"`
}

func (c tokenClock) nowMicros(h *host) int64 {
	return c.Micros + (h.uptime() - c.At).Microseconds()
}

// A tokenGrant is a token that may be granted.
type tokenGrant struct {
	token int64
	last  int64 // the last of several tokens; 0 if it is the only one

	// needsFlush means that the record must be flushed to the disk before the token is granted. The
	// token is so far ahead of the clock, by some caller's floor, that the mark does not cover it.
	// If the mark were raised to it, the tokens of all names would be as high from the next boot
	// on.
	needsFlush bool
}

// nextToken returns the token of the next grant of a name. last is its previous token. The caller
// has the record locked.
func (s *Store) nextToken(ctx context.Context, last int64, req *driver.AcquireRequest) (tokenGrant, error) {
	clock, mark, err := s.currentClock(ctx)
	if err != nil {
		return tokenGrant{}, err
	}
	now := clock.nowMicros(&s.host)
	floor := req.Floor
	if floor > max(now, s.host.wall().UnixMicro())+driver.MaxLead.Microseconds() {
		return tokenGrant{}, fmt.Errorf("%w: the floor %d is more than %v above the clock", driver.ErrInvalid, floor, driver.MaxLead)
	}
	token := max(last+1, now, floor)
	if token > driver.MaxToken {
		return tokenGrant{}, fmt.Errorf("%w: a token above %d would be needed: the floor, or an earlier one of this name, is too high",
			driver.ErrInvalid, int64(driver.MaxToken))
	}
	grant := tokenGrant{token: token}
	if req.Tokens > 1 {
		several := token + int64(min(req.Tokens, driver.MaxTokens)) - 1
		if several <= min(max(now, floor)+driver.MaxTokensLead.Microseconds(), driver.MaxToken) {
			grant.last, token = several, several
		}
	}
	if token <= mark {
		return grant, nil
	}
	if token > max(now, s.host.wall().UnixMicro())+markLead {
		grant.needsFlush = true
		return grant, nil
	}
	return grant, s.raiseMark(ctx, token)
}

// currentClock returns the token clock of this boot, and the mark as far as this Store knows it.
func (s *Store) currentClock(ctx context.Context) (tokenClock, int64, error) {
	s.tokens.mu.Lock()
	clock, mark := s.tokens.clock, s.tokens.mark
	s.tokens.mu.Unlock()
	if clock.Boot != "" {
		return clock, mark, nil
	}
	saved, err := s.readTokens(ctx)
	if err == nil && saved.Boot != s.host.boot {
		saved, err = s.updateTokens(ctx, 0)
	}
	if err != nil {
		return clock, 0, err
	}
	s.cacheTokens(saved)
	return saved.tokenClock, saved.Mark, nil
}

// raiseMark raises the mark well above token.
func (s *Store) raiseMark(ctx context.Context, token int64) error {
	saved, err := s.updateTokens(ctx, token)
	if err != nil {
		return err
	}
	s.cacheTokens(saved)
	return nil
}

func (s *Store) cacheTokens(saved savedTokens) {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	s.tokens.clock = saved.tokenClock
	s.tokens.mark = max(s.tokens.mark, saved.Mark)
}

// advanceMark returns saved for this boot, with a mark above token.
func (s *Store) advanceMark(saved savedTokens, token int64) savedTokens {
	if saved.Boot != s.host.boot {
		saved.tokenClock = s.newTokenClock(saved.Mark)
	}
	token = max(token, saved.nowMicros(&s.host))
	if token > saved.Mark {
		saved.Mark = min(token+markLead, driver.MaxToken)
	}
	return saved
}

// newTokenClock sets the token clock for this boot, above all tokens up to mark.
func (s *Store) newTokenClock(mark int64) tokenClock {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	if s.tokens.clock.Boot != "" {
		return s.tokens.clock // The file was deleted in the meantime.
	}
	return tokenClock{
		Boot:   s.host.boot,
		Micros: max(s.host.wall().UnixMicro(), mark+1),
		At:     s.host.uptime(),
	}
}
