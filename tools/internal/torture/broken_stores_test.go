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
	"github.com/holdfast-go/holdfast/tools/internal/torture/testbed"
)

// A variant is a mistake that locks have in the field.
type variant struct {
	open  func(ctx context.Context, urls []string) (driver.Store, error)
	stage func(t *testing.T) torture.Options
	shows string // the kind of a violation that must be found
}

var variants map[string]variant

func init() { // they need options, which needs them
	variants = map[string]variant{
		"no owner check": {broken(func(s soundStore) driver.Store { return &yesMan{s} }), onRedis, "two holders"},

		// These have a mistake of their own in runUnderDo.
		"Do says nil": {broken(func(s soundStore) driver.Store { return s }), onRedis, "false nil"},
	}
}

// broken puts a mistake between package holdfast and a store that is sound.
func broken(wrap func(soundStore) driver.Store) func(context.Context, []string) (driver.Store, error) {
	return func(ctx context.Context, urls []string) (driver.Store, error) {
		store, err := openSound(ctx, urls[0])
		if err != nil {
			return nil, err
		}
		return wrap(store), nil
	}
}

// A soundStore is a store without a mistake.
type soundStore struct{ driver.Store }

func openSound(ctx context.Context, text string) (soundStore, error) {
	u, err := url.Parse(text)
	if err != nil {
		return soundStore{}, err
	}
	opener, _ := driver.Lookup(u.Scheme)
	store, err := opener(ctx, u)
	return soundStore{store}, err
}

func (s soundStore) Notify(f func(name, owner string, token int64)) (stop func()) {
	if notifier, ok := s.Store.(driver.Notifier); ok {
		return notifier.Notify(f)
	}
	return func() {}
}

func openBroken(ctx context.Context, name string, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	store, err := variants[name].open(ctx, urls)
	if err != nil {
		return nil, err
	}
	return holdfast.New(store, config), nil
}

func onRedis(t *testing.T) torture.Options {
	return partitioned(options(t, "redis://"+servers.StartRedis(t).Addr))
}

func partitioned(o torture.Options) torture.Options {
	o.TTL, o.Long, o.Faults = biteTTL, 50, []torture.Fault{torture.Partition}
	return o
}

// brokenDo are mistakes in Do, by the names of the variants that have them.
var brokenDo = map[string]torture.UnderDo{
	"Do says nil": func(ctx context.Context, c *holdfast.Client, name string, o *holdfast.Options, work func(context.Context, *holdfast.Lock) error) error {
		run := false
		err := c.Do(ctx, name, o, func(ctx context.Context) error {
			run = true
			return work(ctx, holdfast.FromContext(ctx))
		})
		if run {
			return nil
		}
		return err
	},
}

// ofTestbed has a store of package testbed.
func ofTestbed(t *testing.T, kind string, ttl time.Duration) torture.Options {
	t.Helper()
	place, err := testbed.Start(kind, ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := place.Close(); err != nil {
			t.Error(err)
		}
	})
	o := options(t, place.Stores...)
	o.TTL = ttl
	o.Foreign = true
	o.Servers, o.Recovery = place.Servers, place.Recovery
	return o
}

// yesMan grants what is held.
type yesMan struct{ soundStore }

func (s *yesMan) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	res, err := s.Store.Acquire(ctx, req)
	if err == nil && !res.Granted && res.Held.Token > 0 {
		return driver.Result{Granted: true, Token: res.Held.Token + 1}, nil
	}
	return res, err
}

// biteTTL is short, for much to happen in little time.
const biteTTL = 500 * time.Millisecond

// Every mistake is found within three minutes on a busy machine, mostly within seconds.
func TestBrokenStoresAreFound(t *testing.T) {
	t.Parallel()
	together(t, slices.Sorted(maps.Keys(variants)), func(t *testing.T, name string) {
		for began := time.Now(); !found(variants[name].run(t, name), variants[name].shows); {
			if time.Since(began) > 3*time.Minute {
				t.Fatal("not found out")
			}
		}
	})
}

func (v variant) run(t *testing.T, name string) *torture.Report {
	o := v.stage(t)
	o.Open = func(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
		return openBroken(ctx, name, urls, config)
	}
	o.Worker, o.For = worker(name), 4*time.Second
	return run(t, o)
}

// found reports whether there is a violation of a kind, with its history unless it is about what is
// left at the end.
func found(r *torture.Report, kind string) bool {
	return slices.ContainsFunc(r.Violations, func(v torture.Violation) bool {
		return v.Kind == kind && len(v.Events) > 0
	})
}
