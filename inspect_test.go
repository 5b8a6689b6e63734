package holdfast_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestListStripsThePrefix(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, &holdfast.Config{Prefix: "mine:"}), open(t, store, nil)
		for _, name := range []string{"a/1", "a/2", "b"} {
			acquire(t, c, name, nil)
		}
		acquire(t, other, "a/3", nil)
		var names []string
		for rec, err := range c.List(ctx, "a/") {
			if err != nil {
				t.Error(err)
			}
			names = append(names, rec.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"a/1", "a/2"}) {
			t.Errorf("listed %q", names)
		}
	})
}

// Break ends the hold that it has broken and no other: not an older one of this
// Client that the store has lost before.
func TestBreakOfASuccessor(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), holdfast.New(store, nil)
		t.Cleanup(func() { _ = other.Close() }) // its lock is broken
		lock := acquire(t, c, "a", nil)
		if _, err := store.Break(ctx, "a", 0); err != nil { // behind the Client's back
			t.Fatal(err)
		}
		acquire(t, other, "a", nil)
		if _, err := c.Break(ctx, "a", 0); err != nil {
			t.Fatal(err)
		}
		<-lock.Context().Done()
		wantErr(t, lock.Err(), holdfast.ErrTaken)
	})
}

// Break ends the hold with its token, and no other.
func TestBreakOfAToken(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		before := acquire(t, c, "a", nil)
		release(t, before)
		lock := acquire(t, c, "a", nil)
		for _, token := range []int64{1, before.Token(), lock.Token() + 1} {
			records, err := other.Break(ctx, "a", token)
			wantErr(t, err, holdfast.ErrNotHeld)
			if len(records) > 0 {
				t.Errorf("with another token: %v", records)
			}
		}
		_, err := other.Break(ctx, "a", -1)
		wantErr(t, err, holdfast.ErrInvalid)
		if err := lock.Extend(ctx, holdfast.DefaultTTL); err != nil {
			t.Fatalf("the hold with another token was broken: %v", err)
		}
		records, err := c.Break(ctx, "a", lock.Token())
		if err != nil || len(records) != 1 || records[0].Name != "a" || records[0].Token != lock.Token() {
			t.Fatalf("with its token: %v, %v", records, err)
		}
		wantErr(t, lock.Err(), holdfast.ErrTaken)
		_, err = c.Break(ctx, "a", lock.Token())
		wantErr(t, err, holdfast.ErrNotHeld)
	})
}
