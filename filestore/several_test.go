package filestore

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// grantSeveral takes a name with as many tokens as there can be, and releases it. It returns the
// first and the last token.
func grantSeveral(t *testing.T, s *engine, name string, floor int64) (first, last int64) {
	t.Helper()
	req := request(name, time.Minute)
	req.Tokens, req.Floor = olddriver.MaxTokens, floor
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted || res.Tokens != olddriver.MaxTokens {
		t.Fatalf("%+v, %v, want %d tokens", res, err, olddriver.MaxTokens)
	}
	again, err := s.Acquire(t.Context(), req)
	if err != nil || again.Token != res.Token || again.Tokens != res.Tokens {
		t.Fatalf("a repetition: %+v, %v after %+v", again, err, res)
	}
	rec, held, err := s.Lookup(t.Context(), name)
	if err != nil || !held || rec.Token != res.Token {
		t.Fatalf("the record is %+v, %v, %v, want token %d", rec, held, err, res.Token)
	}
	released(t, s, req)
	return res.Token, res.Token + int64(res.Tokens) - 1
}

// Tokens rise above all of a grant: in this process and in another, after a reboot and after a power
// loss, from a record that was kept, and also far ahead of the clock.
func TestSeveralTokens(t *testing.T) {
	f, dir, last, lastHigh := newFakeHost(), t.TempDir(), int64(0), int64(0)
	for range 3 {
		s := openTestOn(t, f.host(), dir)
		for what, next := range map[string]func(name string) int64{
			"in this process":    func(name string) int64 { return nextIn(t, s, name) },
			"in another process": func(name string) int64 { return next(t, f, dir, name) },
			"after a reboot":     func(name string) int64 { f.reboot(); return next(t, f, dir, name) },
			"after a power loss": func(name string) int64 { f.losePower(t, dir); return next(t, f, dir, name) },
		} {
			s = openTestOn(t, f.host(), dir)
			first, end := grantSeveral(t, s, "name", 0)
			rises(t, what, &last, first)
			last = end
			rises(t, what, &last, next("name"))
			s = openTestOn(t, f.host(), dir)
			f.pass(time.Second) // since the last grant of this name
			first, end = grantSeveral(t, s, "high", max(f.ahead(), lastHigh+1))
			rises(t, what+", far ahead,", &lastHigh, first)
			lastHigh = end
			rises(t, what+", far ahead,", &lastHigh, next("high"))
		}
	}
}

// The mark is raised above the last token of a grant, not the first: after a power loss that has
// taken the record, and with a wall clock that has stopped, tokens begin above the mark.
func TestSeveralTokensAcrossTheMark(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s := openTestOn(t, f.host(), dir)
	grantSeveral(t, s, "name", 0) // The mark is now markLead above its first token.
	f.pass(time.Duration(markLead)*time.Microsecond - time.Millisecond/2)
	f.wall.Store(0)
	_, last := grantSeveral(t, s, "name", 0)
	f.losePower(t, dir)
	if token := next(t, f, dir, "name"); token <= last {
		t.Errorf("token %d after %d", token, last)
	}
}
