package election

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

var (
	// ErrNoLeader: nobody leads at the moment.
	ErrNoLeader = errors.New("election: no leader")

	// ErrResigned is the cause with which the context of a term ends when the
	// leader resigns. A function under Run returns it, wrapped or not, to
	// resign by itself.
	ErrResigned = errors.New("election: resigned")

	// ErrNotLeading: this candidate does not lead. It is for adapters, which
	// report by an error what Leading says.
	ErrNotLeading = errors.New("election: this candidate does not lead")

	// ErrRunning: Run was called while another Run of the same Election goes on.
	ErrRunning = errors.New("election: the candidate runs already")
)

// Options say how an Election is held. The zero value, and nil, are good
// defaults.
type Options struct {
	// TTL is the time after which a leader that crashed or was cut off is
	// replaced. The bounds and the default are those of holdfast.Options.TTL:
	// 30 s unless the Client's Config says something else.
	TTL time.Duration

	// Metadata is shown to all who ask for the leader, such as the address
	// under which he is reached. The bounds are those of
	// holdfast.Options.Metadata.
	Metadata map[string]string

	// StandBack is for how long a candidate that has resigned does not stand,
	// so that another can be elected; 0 means 1 s.
	StandBack time.Duration

	// Poll is the time between two looks of Observe; 0 means 250 ms.
	Poll time.Duration

	// Elected is called when a term begins, before the function is.
	Elected func(term Term)

	// Deposed is called as soon as a term is over, while the function may still
	// be on its way out, once for each Elected. The reason matches
	// holdfast.ErrLost, ErrResigned, the end of Run's context, or
	// holdfast.ErrReleased if the function returned by itself.
	//
	// Elected and Deposed must return quickly, and Deposed can run at the same time
	// as the function.
	Deposed func(term Term, reason error)

	// Logger gets a record of elections and of faults of the store while the
	// candidate waits, at level Info and Warn. nil logs nothing.
	Logger *slog.Logger
}

// A Term is the time for which a replica leads.
type Term struct {
	// Leader is the public name of the leader: the Holder of its Client.
	Leader string

	// Token is the fencing token of the term: greater than that of every
	// earlier term. 0 if the store gives no tokens.
	Token int64

	// Since is when the term began, by the store's wall clock, or for one's own
	// term by that of this host; for people.
	Since time.Time

	// Metadata is the Options.Metadata of the leader.
	Metadata map[string]string
}

// An Election is one candidate's view of an election. It can be used to stand,
// to watch, or both, by many goroutines at once.
type Election struct {
	locks *holdfast.Client
	name  string
	o     Options
	log   *slog.Logger

	mu      sync.Mutex
	running bool    // Run goes on
	office  *office // of this candidate, nil while it does not lead
}

// New returns the election of that name among all who use the same store. The
// lock of that name is the office: do not use it for anything else. Nothing is
// started.
func New(locks *holdfast.Client, name string, o *Options) *Election {
	e := &Election{locks: locks, name: name}
	if o != nil {
		e.o = *o
	}
	if e.o.StandBack <= 0 {
		e.o.StandBack = time.Second
	}
	if e.o.Poll <= 0 {
		e.o.Poll = 250 * time.Millisecond
	}
	e.log = e.o.Logger
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	return e
}

// Name returns the name of the election.
func (e *Election) Name() string { return e.name }

// Leading returns the term of this very candidate, and whether it leads. It
// reads the clock and asks nobody, so it is quick, and right at once after a
// pause. By the time the answer is used it may be over: for anything that goes
// on for a while use the context that Run gives.
func (e *Election) Leading() (Term, bool) {
	e.mu.Lock()
	held := e.office
	e.mu.Unlock()
	if held == nil || held.Err() != nil {
		return Term{}, false
	}
	return held.term, true
}

// Resign ends the term of this candidate, if it leads: the context of its
// function ends with ErrResigned, and when the function has returned the office
// is free. Resign returns nil then, or ctx.Err() if ctx ends first; the
// resignation stands all the same. The candidate stands again after
// Options.StandBack. A function that wants to resign returns ErrResigned
// instead of calling Resign, which would wait for it.
func (e *Election) Resign(ctx context.Context) error {
	e.mu.Lock()
	held := e.office
	e.mu.Unlock()
	if held == nil {
		return nil
	}
	held.end(ErrResigned)
	select {
	case <-held.vacated:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
