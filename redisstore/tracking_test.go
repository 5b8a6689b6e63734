//go:build unix

package redisstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// within returns how long it takes until the signal, which must come in time.
func within(t *testing.T, limit time.Duration, what string, signals <-chan struct{}) time.Duration {
	t.Helper()
	began := time.Now()
	select {
	case <-signals:
	case <-time.After(limit + 1): // All that happens by then has happened.
		t.Fatalf("no signal of %s within %v", what, limit)
	}
	return time.Since(began)
}

// none checks that no signal comes for a while.
func none(t *testing.T, span time.Duration, what string, signals <-chan struct{}) {
	t.Helper()
	began := time.Now()
	select {
	case <-signals:
		t.Fatalf("a signal %v after %s", time.Since(began), what)
	case <-time.After(span):
	}
}

// A waiter is woken at once by what may be a release, without a look at the lock
// before that. Once an owner has renewed, the next renewals wake nobody.
func TestWokenAtOnce(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		p.harm(true, false) // A look at the lock is not answered.
		p.say(">2\r\n+invalidate\r\n" + string(encodeCommand("lock:name")))
		within(t, 0, "a release", signals)
	})
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		p.set("lock:name", "one")
		within(t, 0, "the first renewal", signals)
		for range 10 {
			p.set("lock:name", "one")
			none(t, time.Second, "a renewal", signals)
		}
		p.set("lock:name", "")
		within(t, 0, "a release", signals)
	})
}

// mostPause is the longest time for which nobody looks at a lock.
const mostPause = maxPause * pauseStep

// Where many want a lock each looks at it after a pause, and no longer; what
// happens in the pause is not missed. A lock that was found free shortens it.
func TestPauseInACrowd(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		signals := watchOf(t, s, "name")
		greatest := time.Duration(0)
		for range 100 {
			*s.watcher.contention.stepsOf("lock:name") = maxPause
			p.set("lock:name", "one")
			time.Sleep(time.Second) // Taking it is told late.
			drain(signals)
			p.set("lock:name", "")
			p.set("lock:name", "two")
			p.set("lock:name", "")
			greatest = max(greatest, within(t, mostPause, "a release", signals))
		}
		if greatest < mostPause/2 {
			t.Errorf("the greatest of 100 pauses was %v, want them up to %v", greatest, mostPause)
		}
		for i := 0; *s.watcher.contention.stepsOf("lock:name") > 0; i++ {
			if i > 20 {
				t.Fatal("a lock that is found free each time does not end the pauses")
			}
			p.set("lock:name", "")
			within(t, mostPause, "a release", signals)
		}
	})
}

func drain(signals <-chan struct{}) {
	select {
	case <-signals:
	default:
	}
}

// A lock that goes from hand to hand with no chance for us makes us pause, and
// tells us of the new owner soon.
func TestLostRaces(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		p.set("lock:name", "two")
		within(t, 0, "what may have been a release", signals)
		within(t, handoverDelay, "a new owner", signals)
		for range 10 {
			p.set("lock:name", "three")
			within(t, mostPause+handoverDelay, "a new owner", signals)
			p.set("lock:name", "four")
			within(t, mostPause+handoverDelay, "a new owner", signals)
		}
		if pause := *s.watcher.contention.stepsOf("lock:name"); pause != maxPause {
			t.Errorf("after 21 lost races the greatest pause is %d steps, want %d", pause, maxPause)
		}
		if others := *s.watcher.contention.stepsOf("lock:another"); others != 0 && s.watcher.contention.stepsOf("lock:another") != s.watcher.contention.stepsOf("lock:name") {
			t.Errorf("lost races for one lock make us pause %d steps for another", others)
		}
	})
}

// Close and the end of a watch end the pauses.
func TestPausesEnd(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(s *Store, cancel func()){
		"Close":              func(s *Store, _ func()) { _ = s.Close() },
		"the end of a watch": func(_ *Store, cancel func()) { cancel() },
	} {
		pretend(t, func(t *testing.T, p *pretender, s *Store) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, err := s.Watch(ctx, "name"); err != nil {
				t.Fatal(err)
			}
			p.set("lock:name", "one") // It is to be told.
			synctest.Wait()
			*s.watcher.contention.stepsOf("lock:name") = maxPause
			p.set("lock:name", "") // It is to be looked at.
			synctest.Wait()
			s.watcher.mu.Lock()
			lock := s.watcher.locks["lock:name"]
			pauses := lock.readTimer != nil && lock.handoverTimer != nil
			s.watcher.mu.Unlock()
			if !pauses {
				t.Fatal("there are no pauses to be ended")
			}
			p.counted("GET")
			end(s, cancel)
			synctest.Wait()
			if lock.readTimer != nil || lock.handoverTimer != nil {
				t.Errorf("%s left a timer", what)
			}
			time.Sleep(time.Second)
			if n := p.counted("GET"); n != 0 {
				t.Errorf("after %s the lock was looked at", what)
			}
		})
	}
}

// A connection that nothing comes from is tested, at first soon and then more and
// more seldom.
func TestSilenceIsTested(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		for _, span := range []struct {
			length      time.Duration
			least, most int
		}{
			{2*time.Second + time.Millisecond, 1, 1},
			{time.Minute, 3, 4},
			{time.Hour, 89, 91}, // one in 40 s
		} {
			none(t, span.length, "nothing", signals)
			if n := p.counted("PING"); n < span.least || n > span.most {
				t.Errorf("%d tests in %v, want %d to %d", n, span.length, span.least, span.most)
			}
		}
		watchOf(t, s, "another")
		time.Sleep(2*time.Second + time.Millisecond)
		if n := p.counted("PING"); n != 1 {
			t.Errorf("a new watch is followed by %d tests in the first two seconds, want 1", n)
		}
	})
}

// A connection that dies without a word delays a waiter by five seconds, or as
// long again as he has waited.
func TestSilentDeathIsNoticed(t *testing.T) {
	t.Parallel()
	for _, waited := range []time.Duration{0, time.Second, 10 * time.Second, 2 * time.Minute} {
		pretend(t, func(t *testing.T, p *pretender, s *Store) {
			p.set("lock:name", "one")
			signals := watchOf(t, s, "name")
			time.Sleep(waited)
			p.harm(true, false)
			p.set("lock:name", "")
			late := within(t, min(waited+5*time.Second, maxSilence+replyTimeout), "a silent connection", signals)
			t.Logf("after a wait of %v noticed in %v", waited, late)
			p.harm(false, false)
			p.set("lock:name", "two")
			time.Sleep(10 * time.Second)
			drain(signals)
			p.set("lock:name", "")
			within(t, 0, "a release after that", signals)
		})
	}
}

// While the server cannot be reached, or does not answer, whoever waits is
// signalled again and again, and no more when all is well.
func TestReminders(t *testing.T) {
	t.Parallel()
	for what, away := range map[string]bool{"away": true, "silent": false} {
		pretend(t, func(t *testing.T, p *pretender, s *Store) {
			p.set("lock:name", "one")
			signals := watchOf(t, s, "name")
			p.harm(true, away)
			p.cut()
			within(t, 0, "the end of a connection", signals)
			for range 100 {
				within(t, untrackedInterval, "a server that is "+what, signals)
			}
			p.harm(false, false)
			time.Sleep(10 * time.Second)
			drain(signals)
			none(t, time.Hour, "the end of the trouble", signals)
		})
	}
}
