// Package notices passes the notices of a store on to the functions that are registered for them.
package notices

import (
	"slices"
	"sync"
)

// A Registry has the functions that the method Notify of a [driver.Notifier] has registered. The
// zero value has none.
//
// [driver.Notifier]: https://pkg.go.dev/github.com/holdfast-go/holdfast/driver#Notifier
type Registry struct {
	mu    sync.RWMutex // locked for reading while functions are called: stop waits for them
	funcs []*func(name, owner string, token int64)
}

// Notify implements the method of a Notifier.
func (r *Registry) Notify(f func(name, owner string, token int64)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.funcs = append(r.funcs, &f)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.funcs = slices.DeleteFunc(r.funcs, func(other *func(string, string, int64)) bool { return other == &f })
	}
}

// None reports whether no function is registered.
func (r *Registry) None() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.funcs) == 0
}

// Send calls the functions. The caller holds no lock that they or their stop may need.
func (r *Registry) Send(name, owner string, token int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, f := range r.funcs {
		(*f)(name, owner, token)
	}
}
