package drivertest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/driver"
)

// TestBite runs cases of the suite against stores that are broken in one way each, and checks that
// they fail.
func TestBite(t *testing.T) {
	for _, v := range variants {
		t.Run(string(v.bug), func(t *testing.T) {
			for _, name := range strings.Fields(v.fails) {
				c, claims := findCase(t, name), v.claims
				if claims.Store == "" {
					claims = everything
					claims.Fair = c.without != fair
				}
				expectFailure(t, name, Harness{Virtual: true, New: func(testing.TB) Backing { return newModel(claims, v.bug).backing() }})
			}
		})
	}
}

// expectFailure checks that a store fails a case.
func expectFailure(t *testing.T, name string, h Harness) {
	t.Helper()
	backing := h.New(t)
	c, have := findCase(t, name), available(t.Context(), backing.Open(t), backing)
	if !have.contains(c.requires) || c.without&have != 0 {
		t.Errorf("%s is not run", name)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		if !record(t, c, h, have).Failed() {
			t.Errorf("%s does not fail", name)
		}
	})
}

// findCase returns a case by its name.
func findCase(t *testing.T, name string) testCase {
	t.Helper()
	for _, group := range caseGroups() {
		for _, c := range group.cases {
			if group.name+"/"+c.name == name {
				return c
			}
		}
	}
	t.Fatalf("there is no case %s", name)
	return testCase{}
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
