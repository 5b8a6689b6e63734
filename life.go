package holdfast

import (
	"context"
	"sync"
)

// A life is that of a handle, from its acquisition to its end, and the contexts
// that end with it.
type life struct {
	values context.Context // that the acquisition was called with

	mu     sync.Mutex
	end    error // why it is over, nil before
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   context.CancelCauseFunc // of Do
}

// ended returns why the life is over, nil before.
func (l *life) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// finish ends the contexts. Only the first call does anything.
func (l *life) finish(end error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		return
	}
	l.end = end
	if l.cancel != nil {
		l.cancel(end)
	}
	if l.work != nil {
		l.work(end)
	}
}

// bind makes the end of the life the end of a piece of work.
func (l *life) bind(work context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work = work
	if l.end != nil {
		work(l.end)
	}
}

// context returns the context of the handle, which has ended if end is not nil,
// also if finish has not been called yet.
func (l *life) context(end error) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(l.values))
		if end == nil {
			end = l.end
		}
		if end != nil {
			l.cancel(end)
		}
	}
	return l.ctx
}
