//go:build unix

package redisstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// soonest is within what time a connection is there again that has failed once.
const soonest = 2 * minReconnect

// While a server is away it is tried again at pauses that grow, and soon once it
// has been there in between.
func TestPaceOfConnecting(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		watchOf(t, s, "name")
		p.counted("dial")
		p.harm(true, true)
		p.cut()
		for _, span := range []struct {
			length      time.Duration
			least, most int
		}{
			{soonest, 1, 1},
			{10*time.Second - soonest, 8, 15},
			{10 * time.Minute, 300, 600},
		} {
			time.Sleep(span.length)
			if n := p.counted("dial"); n < span.least || n > span.most {
				t.Errorf("%d attempts to connect in %v, want %d to %d", n, span.length, span.least, span.most)
			}
		}
		p.harm(false, false)
		time.Sleep(maxReconnect)
		for range 20 {
			p.counted("dial")
			p.cut()
			time.Sleep(minReconnect/2 - 1)
			if n := p.counted("dial"); n != 0 {
				t.Error("a server that has just hung up was tried again at once")
			}
			time.Sleep(soonest)
			if n := p.counted("dial"); n != 1 || p.connections() != 1 {
				t.Errorf("%d attempts to connect and %d connections %v after the end of one, want 1", n, p.connections(), soonest)
			}
		}
	})
}

// Once there is a connection again the locks are tracked again, and whoever waits
// learns what has become of them meanwhile.
func TestTrackedAgain(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		for range 10 {
			p.cut()
			within(t, 0, "the end of a connection", signals)
			p.set("lock:name", "two")
			within(t, soonest, "a new owner meanwhile", signals)
			p.cut()
			within(t, 0, "the end of a connection", signals)
			p.set("lock:name", "")
			within(t, soonest, "a release meanwhile", signals)
			p.set("lock:name", "one")
			within(t, mostPause+handoverDelay, "a new owner", signals)
			p.set("lock:name", "")
			within(t, mostPause, "a release", signals)
			p.set("lock:name", "one")
			time.Sleep(2 * untrackedInterval) // There are none any more.
			drain(signals)
		}
	})
}

// A watch that begins while the server is away is not said to be in force.
func TestWatchWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		p.harm(true, true)
		p.cut()
		time.Sleep(time.Minute)
		for range 10 {
			if took, err := refused(t, s, "name"); took > maxReconnect {
				t.Errorf("a server that is away is not trackable: said after %v, want %v at most (%v)", took, maxReconnect, err)
			}
		}
		within(t, untrackedInterval, "a server that is away", signals)
		p.harm(false, false)
		within(t, maxReconnect, "a server that is back", signals)
		watchOf(t, s, "name")
	})
}

// A server that is there and does not answer for a lock (its data are still being
// read, it gives a slot away, it hangs) is as good as none for those who wait.
func TestLockThatIsNotTracked(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*pretender){
		"refuses":     func(p *pretender) { p.spoil(false, "LOADING Redis is loading the dataset in memory") },
		"is silent":   func(p *pretender) { p.spoil(true, "") },
		"has hung up": func(p *pretender) { p.spoil(true, ""); p.cut() },
	} {
		pretend(t, func(t *testing.T, p *pretender, s *Store) {
			p.set("lock:name", "one")
			signals := watchOf(t, s, "name")
			for range 2 { // The second time it is all as new.
				spoil(p)
				p.set("lock:name", "two")
				within(t, mostPause+replyTimeout, "what may have been a release", signals)
				within(t, replyTimeout, "a server that "+what, signals)
				for range 30 {
					within(t, untrackedInterval, "a server that "+what, signals)
				}
				p.counted("GET")
				time.Sleep(time.Minute)
				if n := p.counted("GET"); n > 60 {
					t.Errorf("a server that %s is asked %d times in a minute, want once a second at most", what, n)
				}
				refused(t, s, "another")
				p.spoil(false, "")
				time.Sleep(10 * time.Second)
				drain(signals)
				none(t, time.Hour, "the end of the trouble", signals)
				p.set("lock:name", "")
				within(t, mostPause, "a release", signals)
				p.set("lock:name", "one")
				time.Sleep(time.Second)
				drain(signals)
			}
		})
	}
}

// A lock that nobody waits for any more costs nothing, however the last waiter
// has gone.
func TestLastWaiterGoes(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		one, end := context.WithCancel(t.Context())
		if _, err := s.Watch(one, "name"); err != nil {
			t.Fatal(err)
		}
		two, leave := context.WithCancel(t.Context())
		if _, err := s.Watch(two, "name"); err != nil {
			t.Fatal(err)
		}
		asks := func(want int, when string) {
			t.Helper()
			p.counted("GET")
			p.set("lock:name", "one")
			synctest.Wait()
			if n := p.counted("GET"); n != want {
				t.Errorf("%s a renewal costs %d GETs, want %d", when, n, want)
			}
		}
		asks(1, "with two waiters")
		end()
		synctest.Wait()
		asks(1, "with one waiter")
		leave()
		synctest.Wait()
		asks(0, "without waiters")
		nothing(t, s, "when the waiters have gone")

		p.spoil(true, "")
		three, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		if _, err := s.Watch(three, "name"); err == nil {
			t.Error("Watch is in force without an answer")
		}
		nothing(t, s, "when Watch has been given up")
		p.spoil(false, "LOADING")
		refused(t, s, "name")
		nothing(t, s, "when Watch has been refused")
	})
}

// nothing checks that no lock is tracked.
func nothing(t *testing.T, s *Store, when string) {
	t.Helper()
	synctest.Wait()
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	n := len(s.watcher.locks)
	for _, server := range s.watcher.servers {
		n += len(server.locks)
	}
	if n > 0 {
		t.Errorf("%s, %d locks are still tracked", when, n)
	}
}
