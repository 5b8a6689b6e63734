// Package notices passes the notices of a store on to the functions that are registered for them.
package notices

import (
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// A Registry has the functions that the method Notify of a [driver.Notifier] has registered. The
// zero value has none.
type Registry struct {
	mu    sync.RWMutex // locked for reading while functions are called: stop waits for them
	funcs []*func(driver.Notice)
}

// Notify implements the method of [driver.Notifier].
func (r *Registry) Notify(f func(driver.Notice)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.funcs = append(r.funcs, &f)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.funcs = slices.DeleteFunc(r.funcs, func(other *func(driver.Notice)) bool { return other == &f })
	}
}

// Send calls the functions. The caller holds no lock that they or their stop may need.
func (r *Registry) Send(n driver.Notice) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, f := range r.funcs {
		(*f)(n)
	}
}
