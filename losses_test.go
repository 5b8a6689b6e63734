package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// lossStore is a store that loses locks when the test calls lose.
type lossStore struct {
	driver.Store
	owners map[string]string
	lose   func(name, owner string)
}

func (s *lossStore) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	s.owners[req.Name] = req.Owner
	return s.Store.Acquire(ctx, req)
}

func (s *lossStore) Notify(f func(driver.Notice)) func() {
	s.lose = func(name, owner string) { f(driver.Notice{Kind: driver.Lost, Name: name, Owner: owner}) }
	return func() { s.lose = nil }
}

// A loss that the store reports ends the lock at once, and no other.
func TestLossThatTheStoreReports(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := &lossStore{Store: memstore.New(), owners: map[string]string{}}
		lost := 0
		c := holdfast.New(store, &holdfast.Config{
			Prefix: "p/",
			Hooks:  holdfast.OnEvent(holdfast.EventLost, func(holdfast.Event) { lost++ }),
		})
		a, b := acquire(t, c, "a", nil), acquire(t, c, "b", nil)
		store.lose("p/a", "somebody else's secret")
		store.lose("p/b", store.owners["p/a"])
		synctest.Wait()
		if a.Err() != nil || b.Err() != nil {
			t.Fatalf("an alarm about other holds ended %v, %v", a.Err(), b.Err())
		}
		began := time.Now()
		store.lose("p/a", store.owners["p/a"])
		<-a.Context().Done()
		if took := time.Since(began); took != 0 {
			t.Errorf("the context ended after %v", took)
		}
		wantErr(t, context.Cause(a.Context()), holdfast.ErrLost, holdfast.ErrTaken)
		wantErr(t, a.Release(), holdfast.ErrLost)
		synctest.Wait()
		if b.Err() != nil || lost != 1 {
			t.Errorf("the other lock: %v; %d losses", b.Err(), lost)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if store.lose != nil {
			t.Error("the client listens on after Close")
		}
	})
}
