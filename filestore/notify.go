package filestore

import "github.com/holdfast-go/holdfast/driver"

// Notify implements [driver.Notifier]. The only notices are of the kind Ask, for all waiters of a
// name.
func (s *Store) Notify(f func(driver.Notice)) (stop func()) { return s.notices.Notify(f) }

// notify sends a notice to the waiters of a name.
func (s *Store) notify(name string) { s.notices.Send(driver.Notice{Kind: driver.Ask, Name: name}) }
