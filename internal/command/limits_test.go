package command

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/memstore"
)

// A lock that several hold is shown with how much of it is in use, and with all of its holds.
func TestSeveralHoldsAreShown(t *testing.T) {
	limited := holdfast.Record{Name: "slots", Holder: "a", Token: 5, Limit: 10, Waiting: 5, Others: []holdfast.Record{
		{Name: "slots", Holder: "b", Token: 6, Limit: 10, Remaining: time.Minute},
		{Name: "slots", Token: 7, Limit: 10, Kept: true, Remaining: time.Second},
		{Name: "slots", Holder: "c", Token: 8, Limit: driver.Shared},
	}}
	readers := holdfast.Record{Name: "config", Holder: "a", Token: 1, Limit: driver.Shared, Others: []holdfast.Record{
		{Name: "config", Holder: "b", Token: 2, Limit: driver.Shared},
	}}
	locks := []holdfast.Record{readers, {Name: "plain", Holder: "h"}, limited}
	want := []string{
		"NAME    HOLDER       TOKEN  AGE  LEFT       WAITING",
		"config  2 shared: a  1      -    no expiry",
		"plain   h            -      -    no expiry",
		"slots   3 of 10: a   5      -    no expiry  5",
	}
	if got := tableLines(locks, unlimitedWidth); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	shown := string(recordFields(limited))
	for _, line := range []string{
		"in use   3 of 10\n", "waiting  5\n", "and      b, token 6, - ago, left 1m00s unless renewed\n", "and      (kept), token 7, - ago, left 1s\n",
	} {
		if !strings.Contains(shown, line) {
			t.Errorf("%q lacks %q", shown, line)
		}
	}
	view := lockview.NewView(limited)
	if view.Limit != 10 || len(view.Others) != 3 || view.Others[2].Limit != 0 || !view.Others[2].Shared {
		t.Errorf("JSON: %+v", view)
	}
}

// A refusal behind a waiter with a smaller limit does not read as if there were room.
func TestRefusalBehindAWaiter(t *testing.T) {
	store := memstore.New()
	open := func() *holdfast.Client {
		client := holdfast.New(store, nil)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder, small, late := open(), open(), open()
	if _, err := holder.TryAcquire(ctx, "slots", &holdfast.Options{Limit: 4}); err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	waiting, leave := context.WithCancel(ctx)
	defer func() { leave(); <-waited }()
	go func() {
		defer close(waited)
		_, _ = small.Acquire(waiting, "slots", &holdfast.Options{Limit: 1}) // until the end
	}()
	for rec, err := late.Lookup(ctx, "slots"); rec.Waiting == 0; rec, err = late.Lookup(ctx, "slots") {
		if err != nil {
			t.Fatal(err)
		}
	}
	l := limitFlags{limit: 4}
	err := l.explainRefusal(ctx, late, "slots", errors.New("held"))
	if want := "held; 3 slots are free, but a waiter is in front"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}
