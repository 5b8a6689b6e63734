package election

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

var (
	// ErrNoLeader means that no candidate leads at the moment.
	ErrNoLeader = errors.New("election: no leader")

	// ErrResigned is the cause with which the context of a term ends when the leader resigns. A
	// function that Run calls returns it, wrapped or not, to resign by itself.
	ErrResigned = errors.New("election: resigned")

	// ErrRunning means that Run was called while another Run of the same Election was running.
	ErrRunning = errors.New("election: the candidate runs already")
)

// Options configure an Election. The zero value, and nil, are good defaults.
type Options struct {
	// TTL is the time after which a leader that crashed or was cut off is replaced. The bounds and
	// the default are those of holdfast.Options.TTL: 30 s unless the Client's Config sets another
	// value.
	TTL time.Duration

	// Metadata is what Leader and Observe return about this leader in every process, such as the
	// leader's network address. The bounds are those of holdfast.Options.Metadata.
	Metadata map[string]string

	// ResignDelay is the pause before a candidate that has resigned stands again, so that another
	// can be elected; 0 means 1 s.
	ResignDelay time.Duration

	// Logger receives a record of each election, at level Info, and of faults of the store while
	// the candidate waits, at level Warn. nil logs nothing.
	Logger *slog.Logger
}

// A Term is the time during which a replica leads.
type Term struct {
	// Leader is the public name of the leader: the Holder of its Client.
	Leader string

	// Token is the fencing token of the term. It is greater than the token of every earlier term.
	// It is 0 if the store gives no tokens.
	Token int64

	// Since is when the term began, by the store's wall clock. For the candidate's own term it is
	// by the clock of this host. It is for people.
	Since time.Time

	// Metadata is the Options.Metadata of the leader.
	Metadata map[string]string
}

// An Election is one candidate's view of an election. It can be used to stand, to watch, or both.
// Its methods may be called by many goroutines at once.
type Election struct {
	locks *holdfast.Client
	name  string
	o     Options
	log   *slog.Logger

	running sync.Mutex                 // locked until Run returns
	current atomic.Pointer[leadership] // of this candidate, nil while it does not lead
}

// New returns the election of that name among all processes that use the same store. The holder of
// the lock of that name is the leader: do not use the lock for anything else. New starts nothing.
func New(locks *holdfast.Client, name string, o *Options) *Election {
	e := &Election{locks: locks, name: name}
	if o != nil {
		e.o = *o
	}
	if e.o.ResignDelay <= 0 {
		e.o.ResignDelay = time.Second
	}
	e.log = cmp.Or(e.o.Logger, slog.New(slog.DiscardHandler))
	return e
}

// Name returns the name of the election.
func (e *Election) Name() string { return e.name }

// Leading returns the term of this candidate, and whether it leads. It reads the clock and sends no
// request, so it is quick, and right at once after a pause. The term may be over by the time the
// result is used: for anything that takes a while use the context that Run passes.
func (e *Election) Leading() (Term, bool) {
	current := e.current.Load()
	if current == nil || current.Err() != nil {
		return Term{}, false
	}
	return current.term, true
}

// Resign ends the term of this candidate, if it leads. The context of its function ends with
// ErrResigned, the lock is released when the function has returned, and Resign then returns nil. If
// the release is not confirmed, Resign returns an error that matches holdfast.ErrUnavailable, and
// the lock is free after the TTL at the latest. If ctx ends first, Resign returns ctx.Err(). The
// resignation takes effect in any case. The candidate stands again after Options.ResignDelay.
//
// A function that is to resign returns ErrResigned instead of calling Resign, which would wait for
// the function itself.
func (e *Election) Resign(ctx context.Context) error {
	current := e.current.Load()
	if current == nil {
		return nil
	}
	current.end(ErrResigned)
	select {
	case <-current.released:
		return current.releaseErr
	case <-ctx.Done():
		return ctx.Err()
	}
}
