// Package notices passes the notices of a store on to the functions that are registered for them.
package notices

import (
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// A Registry has the functions that the method Notify of a [olddriver.Notifier] has registered. The
// zero value has none.
type Registry struct {
	mu    sync.RWMutex // locked for reading while functions are called: stop waits for them
	funcs []*func(olddriver.Notice)
}

// Notify implements the method of [olddriver.Notifier].
func (r *Registry) Notify(f func(olddriver.Notice)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.funcs = append(r.funcs, &f)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.funcs = slices.DeleteFunc(r.funcs, func(other *func(olddriver.Notice)) bool { return other == &f })
	}
}

// Send calls the functions. The caller holds no lock that they or their stop may need.
func (r *Registry) Send(n olddriver.Notice) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, f := range r.funcs {
		(*f)(n)
	}
}
