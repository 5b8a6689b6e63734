//go:build unix

package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/httplock"
	"github.com/holdfast-go/holdfast/once"
)

// A recipe runs work when it has the lock of that name. It returns nil if the lock was held until
// work had returned nil.
type recipe func(ctx context.Context, c *holdfast.Client, name string, work workFunc) error

type workFunc = func(context.Context) error

const endingTTL = 2 * time.Second

var recipes = map[string]recipe{
	"Do": func(ctx context.Context, c *holdfast.Client, name string, work workFunc) error {
		return c.Do(ctx, name, &holdfast.Options{TTL: endingTTL}, work)
	},
	"DoAll": func(ctx context.Context, c *holdfast.Client, name string, work workFunc) error {
		return c.DoAll(ctx, []string{name, name + "/2"}, &holdfast.Options{TTL: endingTTL}, work)
	},
	"once": func(ctx context.Context, c *holdfast.Client, name string, work workFunc) error {
		result, err := once.Do(ctx, c, name, &once.Options{TTL: endingTTL, Wait: time.Minute}, work)
		if err == nil && result.Verdict != once.Ran {
			err = fmt.Errorf("the work was not run: %v", result)
		}
		return err
	},
	// A term that was cut short is followed by another, so that the error of Run is not that of the
	// first.
	"election": func(ctx context.Context, c *holdfast.Client, name string, work workFunc) error {
		var terms int
		var cut error
		e := election.New(c, name, &election.Options{TTL: endingTTL, ResignDelay: time.Millisecond})
		err := e.Run(ctx, func(ctx context.Context, _ election.Term) error {
			if terms++; terms > 1 {
				return nil
			}
			err := work(ctx)
			cut = context.Cause(ctx)
			return err
		})
		if err == nil {
			err = cut
		}
		return err
	},
	"httplock": func(ctx context.Context, c *holdfast.Client, name string, work workFunc) error {
		var err error
		answer := httptest.NewRecorder()
		key := func(*http.Request) string { return name }
		failed := func(_ *http.Request, failure error) { err = failure }
		o := &httplock.Options{TTL: endingTTL, Wait: time.Minute, Failed: failed}
		httplock.Middleware(c, key, o)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_ = work(r.Context()) // what a handler returns is in its answer
		})).ServeHTTP(answer, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		if answer.Code != http.StatusOK {
			err = fmt.Errorf("answered %d", answer.Code)
		}
		return err
	},
}

// An ending is a way in which the work of a recipe is cut short.
type ending struct {
	name string
	end  func(r *round) error
	want []error // what the error of the recipe matches

	// alone: no other client has the lock while work runs that returns soon after the end of its
	// context. Otherwise no other client has it while Lock.Err returns nil, unless it is broken by
	// force.
	alone, broken bool

	slow bool // a round takes as long as a renewal or a TTL
}

// A round is work under a recipe that is cut short once, while another client waits.
type round struct {
	name   string
	c      *holdfast.Client
	other  *holdfast.Client
	cancel context.CancelFunc
	link   *Link
}

var endings = []*ending{
	{
		name: "Close", end: func(r *round) error { return r.c.Close() },
		want: []error{holdfast.ErrReleased, holdfast.ErrClosed}, alone: true,
	},
	{
		name: "ReleaseAll", end: func(r *round) error { return r.c.ReleaseAll() },
		want: []error{holdfast.ErrReleased}, alone: true,
	},
	{
		// As signal.NotifyContext does.
		name: "SIGTERM", end: func(r *round) error { r.cancel(); return nil },
		want: nil, alone: true,
	},
	{
		name: "Break", end: func(r *round) error {
			_, err := r.c.Break(context.Background(), r.name, 0)
			return err
		},
		want: []error{holdfast.ErrLost, holdfast.ErrTaken}, broken: true,
	},
	{
		name: "broken elsewhere", end: func(r *round) error {
			_, err := r.other.Break(context.Background(), r.name, 0)
			return err
		},
		want: []error{holdfast.ErrLost}, broken: true, slow: true,
	},
	{
		name: "loss", end: func(r *round) error { r.link.Cut(); return nil },
		want: []error{holdfast.ErrLost, holdfast.ErrExpired}, slow: true,
	},
}

// Endings checks that, however the work of Do, DoAll or a recipe is cut short, the error shows it
// although the work returns nil, no other client has the lock too soon, and the next one gets it.
func Endings(t *testing.T, s *Store) {
	t.Helper()
	other := s.Open(t, nil)
	_, err := other.Break(t.Context(), "nobody", 0)
	breaks := !errors.Is(err, holdfast.ErrUnsupported)
	for _, e := range endings {
		if e.name == "loss" && !s.Networked() || e.broken && !breaks {
			continue
		}
		var group sync.WaitGroup // The recipes wait for most of the time.
		for kind, run := range recipes {
			if kind != "once" || other.Guarantees().Keep {
				group.Go(func() {
					t.Run(e.name+"/"+kind, func(t *testing.T) { e.rounds(t, s, other, kind, run) })
				})
			}
		}
		group.Wait()
	}
}

// rounds has the ending come to a recipe several times.
func (e *ending) rounds(t *testing.T, s *Store, other *holdfast.Client, kind string, run recipe) {
	underDo := kind == "Do" || kind == "DoAll"
	rounds := Rounds(t, 10)
	if underDo {
		rounds = Rounds(t, 25)
	}
	if e.slow {
		rounds = 2
	}
	want := e.want
	if e.name == "SIGTERM" && kind != "httplock" { // the error of the work
		want = []error{context.Canceled}
	}
	r := &round{other: other}
	for i := range rounds {
		r.name = fmt.Sprintf("%s/%s/%d", e.name, kind, i)
		if e.name == "loss" {
			r.link = s.Link(t)
			r.c = s.OpenURL(t, r.link.URL, nil)
		} else if i == 0 || e.name == "Close" {
			r.c = s.Open(t, nil)
		}
		r.run(t, e, run, want)
		if underDo { // once keeps the name
			if err := other.TryDo(t.Context(), r.name, nil, nothing); err != nil {
				t.Errorf("%s: at the end of a round: %v", r.name, err)
			}
		}
	}
}

// run makes a round. The error of the recipe must match what is wanted, and the next holder must
// not be too early.
func (r *round) run(t *testing.T, e *ending, run recipe, want []error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.cancel = cancel
	var inside atomic.Bool
	var valid atomic.Int64 // when the lock was last seen to be held
	epoch := time.Now()
	begun, result := make(chan struct{}), make(chan error, 1)
	go func() {
		result <- run(ctx, r.c, r.name, func(ctx context.Context) error {
			inside.Store(true)
			defer inside.Store(false)
			close(begun)
			var held interface{ Err() error } = holdfast.FromContext(ctx)
			if set := holdfast.SetFromContext(ctx); set != nil {
				held = set
			}
			for ctx.Err() == nil {
				at := time.Since(epoch)
				if held.Err() == nil {
					valid.Store(int64(at))
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Millisecond):
				}
			}
			time.Sleep(2 * time.Millisecond) // the work takes as long to stop
			if e.name == "SIGTERM" && held.Err() == nil {
				return context.Cause(ctx) // the work knows that it is not done
			}
			return nil
		})
	}()
	<-begun
	next := make(chan error, 1)
	follow := func() {
		next <- run(t.Context(), r.other, r.name, func(context.Context) error {
			entered := time.Since(epoch)
			if !e.broken && (e.alone && inside.Load() || !e.alone && valid.Load() >= int64(entered)) {
				t.Errorf("%s: the next holder is too early", r.name)
			}
			return nil
		})
	}
	if !e.broken {
		go follow()
	}
	if err := e.end(r); err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	if e.broken { // a quorum breaks node by node, and could hit the next holder
		go follow()
	}
	if err := <-next; err != nil {
		t.Errorf("%s: the next: %v", r.name, err)
	}
	if r.link != nil {
		r.link.Mend() // a leader that was deposed stands again before Run returns
	}
	err := <-result
	if (err == nil) != (want == nil) {
		t.Errorf("%s: %v, want an error: %v", r.name, err, want)
	}
	for _, want := range want {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want an error that matches %q", r.name, err, want)
		}
	}
}
