package storetest

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// Virtual runs a test in virtual time on a store in memory.
func Virtual(t *testing.T, test func(t *testing.T, store driver.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		defer store.Close()
		test(t, store)
	})
}

// Client returns a client of the store for the time of the test.
func Client(t *testing.T, store driver.Store, holder string) *holdfast.Client {
	t.Helper()
	locks := holdfast.New(store, &holdfast.Config{Holder: holder})
	t.Cleanup(func() { locks.Close() })
	return locks
}
