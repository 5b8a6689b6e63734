package queuetest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Mark is the name of a lock that no history has.
const Mark = "mark"

// Settled returns a store for which Run waits, after each call, until the notices have come that the
// call leads to. Mark has the store notify itself of the lock Mark with a token, behind all notices
// that were sent before.
func Settled(s driver.Notifier, mark func(token int64)) driver.Notifier {
	return &settled{Notifier: s, mark: mark, heard: make(chan int64, 100)}
}

type settled struct {
	driver.Notifier
	mark  func(token int64)
	last  int64
	heard chan int64
}

func (s *settled) Notify(f func(name, owner string, token int64)) (stop func()) {
	stop = s.Notifier.Notify(func(name, owner string, token int64) {
		switch name {
		case Mark:
			s.heard <- token
		case "": // The connection for notices was made.
		default:
			f(name, owner, token)
		}
	})
	s.wait()
	return stop
}

// wait returns when the notices have come that were sent before.
func (s *settled) wait() {
	s.last++
	s.mark(s.last)
	for {
		select {
		case token := <-s.heard:
			if token == s.last {
				return
			}
		case <-time.After(time.Second): // The store does not listen yet.
			s.mark(s.last)
		}
	}
}
