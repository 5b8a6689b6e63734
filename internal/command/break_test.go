package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// With --yes, too, break ends only the hold that it has seen.
func TestBreakOfChangedHold(t *testing.T) {
	for _, test := range []struct {
		what string
		next bool // another holder takes the name
		code int
	}{
		{"taken by another", true, exitBusy},
		{"free", false, exitNobody},
	} {
		t.Run(test.what, func(t *testing.T) {
			store := faultstore.Wrap(memstore.New())
			client := holdfast.New(store, &holdfast.Config{Holder: "the-test"})
			t.Cleanup(func() { _ = client.Close() })
			lock := holdLock(t, client, "x")
			var next *holdfast.Lock
			store.Once(faultstore.Lookup, func(_ context.Context, _ faultstore.Op, apply func()) error {
				apply()
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
				if test.next {
					next = holdLock(t, client, "x")
				}
				return nil
			})
			err := new(cli).breakLock(t.Context(), client, "x", 0, true)
			var exit *exitError
			if !errors.As(err, &exit) || exit.code != test.code {
				t.Fatalf("break ended with %v, want exit code %d", err, test.code)
			}
			if !test.next {
				return
			}
			want := fmt.Sprintf(`nothing was broken: meanwhile "x" held by "the-test" under token %d`, next.Token())
			if !strings.HasPrefix(exit.err.Error(), want) {
				t.Errorf("%q, want %q", exit.err, want)
			}
			if err := next.Extend(t.Context(), holdfast.DefaultTTL); err != nil {
				t.Errorf("the next holder was cut off: %v", err)
			}
		})
	}
}

func holdLock(t *testing.T, client *holdfast.Client, name string) *holdfast.Lock {
	t.Helper()
	lock, err := client.TryAcquire(context.Background(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}
