// Package storetest has what the tests of the recipes share: stores in virtual time.
package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// Virtual runs a test in virtual time on a store in memory, and on one that is as coarse as etcd.
func Virtual(t *testing.T, test func(t *testing.T, store driver.Store)) {
	t.Helper()
	for name, grain := range map[string]time.Duration{"exact": 0, "coarse": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.NewCoarse(grain)
				defer store.Close()
				test(t, store)
			})
		})
	}
}

// Client returns a client of the store for the time of the test.
func Client(t *testing.T, store driver.Store, holder string) *holdfast.Client {
	t.Helper()
	locks := holdfast.New(store, &holdfast.Config{Holder: holder})
	t.Cleanup(func() { locks.Close() })
	return locks
}
