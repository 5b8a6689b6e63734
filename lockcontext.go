package holdfast

import (
	"context"
	"fmt"
	"sync"
)

// A lockContext holds the context of a handle, which ends when the lock does, and the functions
// to call then.
type lockContext struct {
	valuesCtx context.Context // the context of the acquisition, for its values

	mu           sync.Mutex
	endReason    error // nil before the end
	ctx          context.Context
	cancel       context.CancelCauseFunc
	boundCancels []context.CancelCauseFunc // called at the end: by work of Do, or a LockSet
	workDone     <-chan struct{}           // closed when the work of Do has returned, nil if there is none
}

// contextErr returns the reason of the end, nil before.
func (lc *lockContext) contextErr() error {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	return lc.endReason
}

// endContext ends the context. Only the first call has an effect.
func (lc *lockContext) endContext(reason error) {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	if lc.endReason != nil {
		return
	}
	lc.endReason = reason
	if lc.cancel != nil {
		lc.cancel(reason)
	}
	for _, cancel := range lc.boundCancels {
		cancel(reason)
	}
}

// cancelWith has cancel called with the reason when the context ends.
func (lc *lockContext) cancelWith(cancel context.CancelCauseFunc) {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	lc.boundCancels = append(lc.boundCancels, cancel)
	if lc.endReason != nil {
		cancel(lc.endReason)
	}
}

// registerWork registers work that has returned when done is closed, so that ReleaseAll and Close
// wait for it. It fails if the context has ended or other work is registered.
func (lc *lockContext) registerWork(done <-chan struct{}) error {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	if lc.endReason != nil {
		return lc.endReason
	}
	if lc.workDone != nil {
		return errWorkRunning
	}
	lc.workDone = done
	return nil
}

// unregisterWork is the reverse of registerWork.
func (lc *lockContext) unregisterWork() {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	lc.workDone = nil
}

// errWorkRunning is the error of a second Do.
var errWorkRunning = fmt.Errorf("%w: Do runs work under it already", ErrInvalid)

// registeredWork returns a channel that is closed when the work of Do has returned, nil if there
// is none.
func (lc *lockContext) registeredWork() <-chan struct{} {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	return lc.workDone
}

// makeContext returns the context of the handle. If it is made now and reason is not nil, it has
// ended, also if endContext has not been called yet.
func (lc *lockContext) makeContext(reason error) context.Context {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	if lc.ctx == nil {
		lc.ctx, lc.cancel = context.WithCancelCause(context.WithoutCancel(lc.valuesCtx))
		if reason == nil {
			reason = lc.endReason
		}
		if reason != nil {
			lc.cancel(reason)
		}
	}
	return lc.ctx
}
