//go:build unix

package quorumstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// walk goes through all that a store does, in a short time.
func walk(tb testing.TB, store *quorumstore.Store) {
	tb.Helper()
	defer func() {
		if err := store.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	}()
	const name = "walk"
	mine := take(tb, store, name)
	theirs := driver.Request{Name: name, Owner: "another", Holder: "other", TTL: time.Minute}
	if res, err := store.Acquire(tb.Context(), theirs); err != nil || res.Granted || res.Held.Holder != "holder" || res.Held.Remaining <= 0 {
		tb.Fatalf("Acquire of a held name: %+v, %v", res, err)
	}
	entries, err := store.Renew(tb.Context(), []driver.RenewRequest{{Name: name, Owner: mine.Owner, TTL: time.Minute}})
	if err != nil || entries[0].State != driver.Held || entries[0].Token == 0 {
		tb.Fatalf("Renew: %v, %v", entries, err)
	}
	if records, err := store.Lookup(tb.Context(), name); err != nil || len(records) != 1 || records[0].Holder != "holder" {
		tb.Fatalf("Lookup: %+v, %v", records, err)
	}
	for rec, err := range store.List(tb.Context(), name) {
		if err != nil || rec.Name != name {
			tb.Fatalf("List: %+v, %v", rec, err)
		}
	}
	walkOut(tb, store, mine)
	contend(tb, store, 4, 20)
}

// walkOut ends a hold by Release, and another by Break.
func walkOut(tb testing.TB, store *quorumstore.Store, mine driver.Request) {
	tb.Helper()
	if ours, err := store.Release(tb.Context(), driver.ReleaseRequest{Name: mine.Name, Owner: mine.Owner}); err != nil || !ours {
		tb.Fatalf("Release: %v, %v", ours, err)
	}
	next := take(tb, store, mine.Name)
	if ended, err := store.Break(tb.Context(), next.Name, 0); err != nil || len(ended) != 1 || ended[0].Holder != "holder" {
		tb.Fatalf("Break: %+v, %v", ended, err)
	}
	if ours, err := store.Release(tb.Context(), driver.ReleaseRequest{Name: next.Name, Owner: next.Owner}); err != nil || ours {
		tb.Fatalf("Release of what was broken: %v, %v", ours, err)
	}
}

var owners atomic.Int64

// take takes a name that is free, or about to be: a release may be under way to a minority.
func take(tb testing.TB, store *quorumstore.Store, name string) driver.Request {
	tb.Helper()
	req := driver.Request{Name: name, Holder: "holder", TTL: time.Minute}
	if _, err := insist(tb.Context(), store, &req); err != nil {
		tb.Fatalf("Acquire of a free name: %v", err)
	}
	return req
}

// contend lets clients take one name in turn. There is never more than one
// inside, and their tokens rise.
func contend(tb testing.TB, store *quorumstore.Store, clients, turns int) {
	tb.Helper()
	var inside atomic.Int32
	var last int64 // guarded by the lock
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for range turns {
				req := driver.Request{Name: "contended", Holder: fmt.Sprint(i), TTL: time.Minute}
				token, err := insist(tb.Context(), store, &req)
				if err != nil {
					tb.Errorf("Acquire: %v", err)
					return
				}
				if inside.Add(1) != 1 {
					tb.Error("two are inside")
				}
				if token <= last {
					tb.Errorf("token %d after %d", token, last)
				}
				last = token
				inside.Add(-1)
				if ours, err := store.Release(tb.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil || !ours {
					tb.Errorf("Release: %v, %v", ours, err)
				}
			}
		})
	}
	group.Wait()
}

// insist makes attempts, each of a new owner, until one is granted.
func insist(ctx context.Context, store driver.Store, req *driver.Request) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req.Owner = fmt.Sprint("owner ", owners.Add(1))
		res, err := store.Acquire(ctx, *req)
		var again *driver.RetryError // after a vote without a winner
		if err != nil && !errors.As(err, &again) || res.Granted {
			return res.Token, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}
