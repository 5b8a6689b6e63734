package filestore

import "github.com/holdfast-go/holdfast/internal/olddriver"

// Notify implements [olddriver.Notifier]. The only notices are of the kind Ask, for all waiters of a
// name.
func (s *engine) Notify(f func(olddriver.Notice)) (stop func()) { return s.notices.Notify(f) }

// notify sends a notice to the waiters of a name.
func (s *engine) notify(name string) {
	s.notices.Send(olddriver.Notice{Kind: olddriver.Ask, Name: name})
}
