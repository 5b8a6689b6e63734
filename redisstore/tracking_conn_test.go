//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// refused checks that a name cannot be watched, and returns how long it took to
// say so.
func refused(t *testing.T, s *Store, name string) (took time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	_, err = s.Watch(ctx, name)
	if err == nil || ctx.Err() != nil {
		t.Fatalf("Watch: %v after %v, want an error of the server", err, time.Since(began))
	}
	return time.Since(began), err
}

// Whoever asks notices within the time for an answer that a connection has died
// without a word, however long the others have waited; and then they know, too.
func TestQuestionToADeadConnection(t *testing.T) {
	t.Parallel()
	for what, harm := range map[string]func(*pretender){
		"answers nothing": func(p *pretender) { p.harm(true, false) },
		"reads nothing":   (*pretender).deafen,
	} {
		pretend(t, func(t *testing.T, p *pretender, s *Store) {
			p.set("lock:name", "one")
			signals := watchOf(t, s, "name")
			time.Sleep(10 * time.Minute)
			drain(signals)
			harm(p)
			second := make(chan error, 1)
			go func() {
				time.Sleep(time.Second)
				_, err := s.Watch(t.Context(), "second")
				second <- err
			}()
			if took, err := refused(t, s, "first"); took != replyTimeout {
				t.Errorf("it took %v to notice that the server %s (%v), want %v", took, what, err, replyTimeout)
			}
			within(t, 0, "a server that "+what, signals)
			if err := <-second; err == nil {
				t.Errorf("a server that %s tracks a lock", what)
			}
			p.harm(false, false)
			p.hear()
			time.Sleep(10 * time.Second)
			drain(signals)
			p.set("lock:name", "")
			within(t, 0, "a release after that", signals)
		})
	}
}

// A server that stops within a message is noticed as soon as one that does not
// answer.
func TestHalfAMessage(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		time.Sleep(10 * time.Minute)
		drain(signals)
		p.say(">2\r\n+invali")
		within(t, replyTimeout, "half a message", signals)
	})
}

// After what it does not understand a connection is made anew: the answers that
// follow could be taken for those to other questions.
func TestNonsense(t *testing.T) {
	t.Parallel()
	for what, message := range map[string]string{
		"an answer without a question": "+OK\r\n",
		"no message":                   "what?\r\n",
	} {
		pretend(t, func(t *testing.T, p *pretender, s *Store) {
			p.set("lock:name", "one")
			signals := watchOf(t, s, "name")
			p.counted("dial")
			p.say(message)
			within(t, 0, what, signals)
			time.Sleep(time.Second)
			if n := p.counted("dial"); n != 1 {
				t.Errorf("%s is followed by %d connections, want 1", what, n)
			}
			drain(signals)
			p.set("lock:name", "")
			within(t, 0, "a release after that", signals)
		})
	}
}

// News of another kind are none of our business.
func TestOtherNews(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		p.counted("GET")
		p.say(">3\r\n+message\r\n+lock:name\r\n+x\r\n")
		p.say(">2\r\n+tracking-redir-broken\r\n" + string(encodeCommand("lock:name")))
		none(t, time.Second, "other news", signals)
		if n := p.counted("GET"); n > 0 {
			t.Errorf("other news cost %d GETs", n)
		}
	})
}

// Many questions can be under way, and each is given its own answer.
func TestAnswersInOrder(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		const locks = 20
		for i := range locks {
			p.set(fmt.Sprint("lock:", i), fmt.Sprint("owner of ", i))
			watchOf(t, s, fmt.Sprint(i))
		}
		p.cut()
		time.Sleep(time.Second)
		s.watcher.mu.Lock()
		defer s.watcher.mu.Unlock()
		for i := range locks {
			if lock := s.watcher.locks[fmt.Sprint("lock:", i)]; !lock.armed || lock.value != fmt.Sprint("owner of ", i) {
				t.Errorf("lock %d is taken to be in force: %v, and held by %q", i, lock.armed, lock.value)
			}
		}
	})
}

// A connection that is given up is closed, and so is that of a Store.
func TestConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		signals := watchOf(t, s, "name")
		for range 3 {
			p.harm(true, false)
			within(t, time.Minute, "a silent connection", signals)
			p.harm(false, false)
			time.Sleep(10 * time.Second)
			if n := p.connections(); n != 1 {
				t.Errorf("there are %d connections, want that which works", n)
			}
			drain(signals)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n := p.connections(); n != 0 {
			t.Errorf("Close left %d connections", n)
		}
	})
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.set("lock:name", "one")
		p.harm(true, false)
		if took, err := refused(t, s, "name"); took != replyTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server that says nothing was given up after %v: %v, want after %v", took, err, replyTimeout)
		}
		if n := p.connections(); n != 0 {
			t.Errorf("an attempt to connect left %d connections", n)
		}
	})
	pretend(t, func(t *testing.T, p *pretender, s *Store) {
		p.old = true
		if _, err := refused(t, s, "name"); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("a server that does not know HELLO: %v, want ErrUnsupported", err)
		}
		if n := p.connections(); n != 0 {
			t.Errorf("a server that was refused keeps %d connections", n)
		}
	})
}

// Close ends whatever is under way.
func TestCloseOfAWatcher(t *testing.T) {
	t.Parallel()
	for what, harm := range map[string]func(*pretender){
		"a connection is there":      func(*pretender) {},
		"one is being made":          func(p *pretender) { p.harm(true, false); p.cut() },
		"the server is away":         func(p *pretender) { p.harm(true, true); p.cut() },
		"the server reads nothing":   (*pretender).deafen,
		"the server answers nothing": func(p *pretender) { p.harm(true, false) },
	} {
		pretend(t, func(t *testing.T, p *pretender, s *Store) {
			p.set("lock:name", "one")
			watchOf(t, s, "name")
			harm(p)
			time.Sleep(time.Second)
			watching := make(chan error, 1)
			go func() {
				_, err := s.Watch(t.Context(), "another")
				watching <- err
			}()
			time.Sleep(time.Millisecond)
			began := time.Now()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			s.watcher.mu.Lock()
			if n := len(s.watcher.servers); n > 0 {
				t.Errorf("while %s, Close does not wait for the end of %d connections", what, n)
			}
			s.watcher.mu.Unlock()
			if took := time.Since(began); took > 0 {
				t.Errorf("while %s, Close takes %v", what, took)
			}
			<-watching
			if _, err := s.Watch(t.Context(), "name"); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("Watch after Close: %v, want ErrClosed", err)
			}
			p.hear()
			if n := p.connections(); n != 0 {
				t.Errorf("while %s, Close leaves %d connections", what, n)
			}
		})
	}
}
