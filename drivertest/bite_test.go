package drivertest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/driver"
)

// TestBite runs cases of the suite against stores that are broken in one way each, and checks that
// they fail. There is a broken store for every case.
func TestBite(t *testing.T) {
	var bitten []string
	for _, b := range bugs {
		bitten = append(bitten, strings.Fields(b.fails)...)
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			if b.claims == (driver.Guarantees{}) {
				b.claims = everything
			}
			for _, name := range strings.Fields(b.fails) {
				expectFailure(t, name, b)
			}
		})
	}
	for _, theme := range themes() {
		for _, c := range theme.cases {
			if name := theme.name + "/" + c.name; !slices.Contains(bitten, name) {
				t.Errorf("no broken store is caught by %s", name)
			}
		}
	}
}

// expectFailure checks that a broken store fails a case, which the correct one with these claims
// runs.
func expectFailure(t *testing.T, name string, b *bug) {
	t.Helper()
	c, have := findCase(t, name), probe(t, (&bug{bare: b.bare, quiet: b.quiet}).harness(b.claims))
	if c.needs&^have != 0 {
		t.Errorf("%s is not run", name)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		if !record(t, c, b.harness(b.claims), have).Failed() {
			t.Errorf("%s does not fail", name)
		}
	})
}

// findCase returns a case by its name.
func findCase(t *testing.T, name string) testCase {
	t.Helper()
	for _, theme := range themes() {
		for _, c := range theme.cases {
			if theme.name+"/"+c.name == name {
				return c
			}
		}
	}
	t.Fatalf("there is no case %s", name)
	return testCase{}
}
