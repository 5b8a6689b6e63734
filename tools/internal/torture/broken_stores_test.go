//go:build unix

package torture_test

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/tools/internal/torture"
)

const (
	noOwnerCheck = "no owner check"
	doSaysNil    = "Do says nil"
)

// mistakes are some that locks have in the field, with the kind of a violation that must be found.
var mistakes = map[string]string{noOwnerCheck: "two holders", doSaysNil: "false nil"}

// openMistaken opens a store in Redis, with a mistake.
func openMistaken(ctx context.Context, mistake, text string, config *holdfast.Config) (*holdfast.Client, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	opener, _ := driver.Lookup(u.Scheme)
	store, err := opener(ctx, u)
	if err != nil {
		return nil, err
	}
	if mistake == noOwnerCheck {
		store = yesMan{store.(driver.Notifier)}
	}
	return holdfast.New(store, config), nil
}

// yesMan grants what is held.
type yesMan struct{ driver.Notifier }

func (s yesMan) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	res, err := s.Notifier.Acquire(ctx, req)
	if err == nil && !res.Granted && res.Held.Token > 0 {
		return driver.Result{Granted: true, Token: res.Held.Token + 1}, nil
	}
	return res, err
}

// sayNil is Do without the error of work that was run.
func sayNil(ctx context.Context, c *holdfast.Client, name string, o *holdfast.Options, work func(context.Context, *holdfast.Lock) error) error {
	run := false
	err := c.Do(ctx, name, o, func(ctx context.Context) error {
		run = true
		return work(ctx, holdfast.FromContext(ctx))
	})
	if run {
		return nil
	}
	return err
}

// Every mistake is found within three minutes on a busy machine, mostly within seconds. A violation
// has its history.
func TestBrokenStoresAreFound(t *testing.T) {
	t.Parallel()
	together(t, slices.Sorted(maps.Keys(mistakes)), func(t *testing.T, mistake string) {
		o := options(t, "redis://"+servers.StartRedis(t).Addr)
		o.TTL, o.Long, o.Faults = 500*time.Millisecond, 50, []torture.Fault{torture.Partition}
		o.Open = func(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
			return openMistaken(ctx, mistake, urls[0], config)
		}
		o.Worker, o.For = worker(mistake), 4*time.Second
		shows := func(v torture.Violation) bool { return v.Kind == mistakes[mistake] && len(v.Events) > 0 }
		for began := time.Now(); !slices.ContainsFunc(run(t, o).Violations, shows); o.Dir = t.TempDir() {
			if time.Since(began) > 3*time.Minute {
				t.Fatal("not found out")
			}
		}
	})
}
