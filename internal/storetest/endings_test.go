package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/httplock"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/storetest"
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
}

// A round is work under a recipe that is cut short, while another client waits.
type round struct {
	store  *faultstore.Store // of c alone
	c      *holdfast.Client
	other  *holdfast.Client
	cancel context.CancelFunc
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
		name: "Break", end: func(r *round) error { return breakLock(r.c) },
		want: []error{holdfast.ErrLost, holdfast.ErrTaken}, broken: true,
	},
	{
		name: "broken elsewhere", end: func(r *round) error { return breakLock(r.other) },
		want: []error{holdfast.ErrLost}, broken: true,
	},
	{
		name: "loss", end: func(r *round) error { r.cut(faultstore.Hang); return nil },
		want: []error{holdfast.ErrLost, holdfast.ErrExpired},
	},
}

func breakLock(c *holdfast.Client) error {
	_, err := c.Break(context.Background(), "a", 0)
	return err
}

// cut has all requests of the first client meet with the fault.
func (r *round) cut(fault faultstore.Fault) {
	for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
		r.store.Set(op, fault)
	}
}

// However the work of Do, DoAll or a recipe is cut short, the error shows it although the work
// returns nil, no other client has the lock too soon, and the next one gets it.
func TestEndings(t *testing.T) {
	for _, e := range endings {
		for kind, run := range recipes {
			want := e.want
			if e.name == "SIGTERM" && kind != "httplock" { // the error of the work
				want = []error{context.Canceled}
			}
			t.Run(e.name+"/"+kind, func(t *testing.T) {
				storetest.Virtual(t, func(t *testing.T, store driver.Store) {
					faulty := faultstore.Wrap(store)
					r := &round{store: faulty, c: storetest.Client(t, faulty, "first"), other: storetest.Client(t, store, "other")}
					r.run(t, e, run, want)
					if kind == "once" { // keeps the name
						return
					}
					if err := r.other.TryDo(t.Context(), "a", nil, func(context.Context) error { return nil }); err != nil {
						t.Errorf("at the end of a round: %v", err)
					}
				})
			})
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
	var valid atomic.Pointer[time.Time] // when the lock was last seen to be held
	begun, result := make(chan struct{}), make(chan error, 1)
	go func() {
		result <- run(ctx, r.c, "a", func(ctx context.Context) error {
			inside.Store(true)
			defer inside.Store(false)
			close(begun)
			var held interface{ Err() error } = holdfast.FromContext(ctx)
			if set := holdfast.SetFromContext(ctx); set != nil {
				held = set
			}
			for ctx.Err() == nil {
				at := time.Now()
				if held.Err() == nil {
					valid.Store(&at)
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
	go func() {
		next <- run(t.Context(), r.other, "a", func(context.Context) error {
			if !e.broken && (e.alone && inside.Load() || !e.alone && !valid.Load().Before(time.Now())) {
				t.Error("the next holder is too early")
			}
			return nil
		})
	}()
	synctest.Wait()
	if err := e.end(r); err != nil {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Errorf("the next: %v", err)
	}
	r.cut(nil) // A leader that was deposed stands again before Run returns.
	err := <-result
	if (err == nil) != (want == nil) {
		t.Errorf("%v, want an error: %v", err, want)
	}
	for _, want := range want {
		if !errors.Is(err, want) {
			t.Errorf("%v, want an error that matches %q", err, want)
		}
	}
}
