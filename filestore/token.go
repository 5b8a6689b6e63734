package filestore

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Tokens follow a clock of microseconds since 1970 that never steps back. In
// every boot it is set once, to the time of day but above all tokens of earlier
// boots, and then goes on with the boot clock. So a record can be deleted once
// the clock has passed its last token.
//
// What was above all tokens of earlier boots is known from a mark in the tokens
// file, which survives a power loss: it is raised well ahead of the clock, and
// no token above it is granted before it has been raised.

// headStart is how far ahead of the tokens the mark is raised: so long is the
// time from one fsync to the next.
const headStart = int64(10 * time.Minute / time.Microsecond)

// tokens is what a Store remembers of the tokens file. It holds for this boot:
// the clock does not change, and the mark only grows.
type tokens struct {
	mu    sync.Mutex
	clock tokenClock
	mark  int64
}

// A tokenClock is the token clock of one boot: it was at Micros when the boot
// clock was at At.
type tokenClock struct {
	Boot   string        `json:"boot"`
	Micros int64         `json:"clock_us"`
	At     time.Duration `json:"at_ns"`
}

func (c tokenClock) read(h *host) int64 {
	return c.Micros + (h.uptime() - c.At).Microseconds()
}

// A grant is a token that may be given out.
type grant struct {
	token int64

	// flush asks for the record to be flushed to the disk before the token is
	// given out: the token is so far ahead of the clock, by somebody's floor,
	// that the mark does not cover it. Were the mark raised to it, the tokens
	// of all names would be as high from the next boot on.
	flush bool
}

// nextToken returns the token of the next grant of a name whose last one had
// the token last. The caller has the record locked.
func (s *Store) nextToken(ctx context.Context, last, floor int64) (grant, error) {
	clock, mark, err := s.tokenClock(ctx)
	if err != nil {
		return grant{}, err
	}
	now := clock.read(&s.host)
	token := max(last+1, now, floor)
	if token > driver.MaxToken {
		return grant{}, fmt.Errorf("%w: a token above %d would be needed: the floor, or an earlier one of this name, is too high",
			driver.ErrInvalid, int64(driver.MaxToken))
	}
	if token <= mark {
		return grant{token: token}, nil
	}
	if token > max(now, s.host.wall().UnixMicro())+headStart {
		return grant{token: token, flush: true}, nil
	}
	return grant{token: token}, s.raiseMark(ctx, token)
}

// tokenClock returns the token clock of this boot, and the mark as far as it is
// known here.
func (s *Store) tokenClock(ctx context.Context) (tokenClock, int64, error) {
	s.tokens.mu.Lock()
	clock, mark := s.tokens.clock, s.tokens.mark
	s.tokens.mu.Unlock()
	if clock.Boot != "" {
		return clock, mark, nil
	}
	saved, err := s.readTokens(ctx)
	if err == nil && saved.Boot != s.host.boot {
		saved, err = s.changeTokens(ctx, 0)
	}
	if err != nil {
		return clock, 0, err
	}
	s.rememberTokens(saved)
	return saved.tokenClock, saved.Mark, nil
}

// raiseMark sees to it that the mark covers token, and a good deal more.
func (s *Store) raiseMark(ctx context.Context, token int64) error {
	saved, err := s.changeTokens(ctx, token)
	if err != nil {
		return err
	}
	s.rememberTokens(saved)
	return nil
}

func (s *Store) rememberTokens(saved savedTokens) {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	s.tokens.clock = saved.tokenClock
	s.tokens.mark = max(s.tokens.mark, saved.Mark)
}

// advance brings saved into this boot, and its mark above token.
func (s *Store) advance(saved savedTokens, token int64) savedTokens {
	if saved.Boot != s.host.boot {
		saved.tokenClock = s.newClock(saved.Mark)
	}
	token = max(token, saved.read(&s.host))
	if token > saved.Mark {
		saved.Mark = min(token+headStart, driver.MaxToken)
	}
	return saved
}

// newClock sets the token clock for this boot, above all tokens up to mark.
func (s *Store) newClock(mark int64) tokenClock {
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

func (s *Store) tokensPath() string { return filepath.Join(s.dir, tokensFile) }
