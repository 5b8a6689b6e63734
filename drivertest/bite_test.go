package drivertest

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/driver"
)

// TestBite runs the suite against stores that are broken in one way each, and
// checks that the cases about it fail, and only those.
func TestBite(t *testing.T) {
	// Not by t.Parallel: a hundred tests that wait for their turn would be in
	// every goroutine profile that the suite takes.
	queue := make(chan variant)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for v := range queue {
				t.Run(string(v.bug), v.test)
			}
		})
	}
	for _, v := range variants {
		queue <- v
	}
	close(queue)
	wg.Wait()
}

func (v variant) test(t *testing.T) {
	claims := v.claims
	if claims == (driver.Guarantees{}) {
		claims = everything
	}
	failed := failures(t, claims, v.bug, 0)
	if claims == everything {
		failed = append(failed, failures(t, without(fair), v.bug, fair)...)
	}
	v.check(t, failed)
}

// check compares the cases that have failed with those that are expected to.
func (v variant) check(t *testing.T, failed []string) {
	want, may := strings.Fields(v.fails), strings.Fields(v.may)
	for _, name := range failed {
		if !slices.Contains(want, name) && !slices.Contains(may, name) {
			t.Errorf("%s fails, though it is not about this", name)
		}
	}
	for _, name := range want {
		if !slices.Contains(failed, name) {
			t.Errorf("%s does not fail", name)
		}
	}
}

// TestEveryCaseBites checks that there is a broken store for every case.
func TestEveryCaseBites(t *testing.T) {
	var bitten []string
	for _, v := range variants {
		bitten = append(bitten, strings.Fields(v.fails)...)
	}
	for _, v := range sharedVariants {
		bitten = append(bitten, strings.Fields(v.fails)...)
	}
	for _, group := range caseGroups() {
		for _, c := range group.cases {
			if name := group.name + "/" + c.name; !slices.Contains(bitten, name) {
				t.Errorf("no broken store is caught by %s", name)
			}
		}
	}
}

// failures is the names of the cases that a store fails, in virtual time: of those about notices
// without a feature, or of all if it is 0.
func failures(t *testing.T, claims driver.Guarantees, b bug, lacking features) []string {
	h := Harness{
		Virtual: true,
		New:     func(testing.TB) Backing { return newModel(claims, b).backing() },
	}
	backing := h.New(t)
	have := available(t.Context(), backing.Open(t), backing)
	var failed []string
	for _, group := range caseGroups() {
		for _, c := range group.cases {
			if !have.contains(c.requires) || c.without&have != 0 || lacking != 0 && (c.without != lacking || c.requires&notifying == 0) {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				if record(t, c, h, have).Failed() {
					failed = append(failed, group.name+"/"+c.name)
				}
			})
		}
	}
	return failed
}

// without is what a store claims that does everything but one thing.
func without(need features) driver.Guarantees {
	claims := everything
	switch need {
	case fencing:
		claims.Fencing = false
	case fair:
		claims.Fair = false
	case lookup:
		claims.Lookup = false
	case list:
		claims.List = false
	case breaking:
		claims.Break = false
	case metadata:
		claims.Metadata = false
	case keep:
		claims.Keep = false
	case detached:
		claims.Detached = false
	case processes:
		claims.Scope = driver.ScopeProcess
	}
	return claims
}
