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
	for _, taken := range []bool{false, true} { // by another, when the hold was seen
		store := faultstore.Wrap(memstore.New())
		client := holdfast.New(store, &holdfast.Config{Holder: "the-test"})
		t.Cleanup(func() { _ = client.Close() })
		lock, code, says := holdLock(t, client, "x"), exitNobody, ""
		store.Once(faultstore.Lookup, func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
			if taken {
				lock, code = holdLock(t, client, "x"), exitBusy
				says = fmt.Sprintf(`nothing was broken: meanwhile "x" held by "the-test" under token %d`, lock.Token())
			}
			return nil
		})
		err := new(cli).breakLock(t.Context(), client, "x", 0, true)
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != code || !strings.HasPrefix(exit.err.Error(), says) {
			t.Fatalf("break ended with %v, want exit code %d and %q", err, code, says)
		}
		if taken && lock.Extend(t.Context(), holdfast.DefaultTTL) != nil {
			t.Error("the next holder was cut off")
		}
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
