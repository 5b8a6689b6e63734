//go:build unix

package torture_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/tools/internal/torture"
)

// openBroken opens a store in Redis that compares no owners.
func openBroken(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	u, err := url.Parse(urls[0])
	if err != nil {
		return nil, err
	}
	opener, _ := driver.Lookup(u.Scheme)
	store, err := opener(ctx, u)
	if err != nil {
		return nil, err
	}
	return holdfast.New(yesMan{store.(driver.Notifier)}, config), nil
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

// Two holders are found within three minutes on a busy machine, mostly within seconds, and so is a
// Do that does not report them. A violation has its history.
func TestBrokenStoresAreFound(t *testing.T) {
	t.Parallel()
	o := options(t, "redis://"+servers.StartRedis(t).Addr)
	o.TTL, o.Long, o.Faults = 500*time.Millisecond, 50, []torture.Fault{torture.Partition}
	o.Open, o.Worker, o.For = openBroken, worker("1"), 4*time.Second
	missing := map[string]bool{"two holders": true, "false nil": true}
	for began := time.Now(); len(missing) > 0; o.Dir = t.TempDir() {
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("not found out: %v", missing)
		}
		for _, v := range run(t, o).Violations {
			if len(v.Events) > 0 {
				delete(missing, v.Kind)
			}
		}
		time.Sleep(o.TTL) // The next run wants free locks.
	}
}
