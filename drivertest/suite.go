package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A testCase is one thing that a correct store does.
type testCase struct {
	name  string
	claim string // one sentence, printed when the case fails
	needs needs  // what must be there for the case to be run
	lacks needs  // what must not be there
	run   func(r *run)
}

// A theme is a group of cases, one file of this package.
type theme struct {
	name  string
	cases []testCase
}

// suite is everything that Run tests.
func suite() []theme {
	return []theme{
		{"guarantees", guaranteesCases},
		{"acquire", acquireCases},
		{"renew", renewCases},
		{"release", releaseCases},
		{"expiry", expiryCases},
		{"tokens", tokensCases},
		{"keep", keepCases},
		{"detached", detachedCases},
		{"lookup", lookupCases},
		{"metadata", metadataCases},
		{"list", listCases},
		{"break", breakCases},
		{"watch", watchCases},
		{"names", namesCases},
		{"contexts", contextsCases},
		{"concurrency", concurrencyCases},
		{"start", startCases},
		{"closing", closingCases},
		{"faults", faultsCases},
	}
}

// Run tests a store against the contract of package driver. It returns when
// all cases are done.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil {
		t.Fatal("drivertest: Harness.New is nil")
	}
	have := probe(t, h)
	untested := report{}
	for _, th := range suite() {
		var cases []testCase
		for _, c := range th.cases {
			if lacking := c.needs &^ have; lacking != 0 {
				untested[lacking.why()] = append(untested[lacking.why()], th.name+"/"+c.name)
			} else if c.lacks&have == 0 {
				cases = append(cases, c)
			}
		}
		if len(cases) > 0 {
			t.Run(th.name, func(t *testing.T) { runCases(t, h, cases) })
		}
	}
	if len(untested) > 0 {
		t.Logf("not tested here:%s", untested)
	}
}

// A report has the names of cases that were not run, by reason.
type report map[string][]string

func (u report) String() string {
	var text strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(u)) {
		fmt.Fprintf(&text, "\n\t%s: %s", reason, strings.Join(u[reason], ", "))
	}
	return text.String()
}

func runCases(t *testing.T, h Harness, cases []testCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if !h.Serial {
				t.Parallel()
			}
			inBubble(t, h.Virtual, func(t *testing.T) { c.exec(t, h) })
		})
	}
}

// probe finds out what the store claims and what its harness offers.
func probe(t *testing.T, h Harness) needs {
	t.Helper()
	var have needs
	inBubble(t, h.Virtual, func(t *testing.T) {
		backing := h.New(t)
		if backing.Open == nil {
			t.Fatal("drivertest: Harness.New returned a Backing without Open")
		}
		store := backing.Open(t)
		have = offered(store, backing)
		if err := store.Close(); err != nil {
			t.Errorf("Close of an unused store: %v", err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return have
}

func inBubble(t *testing.T, virtual bool, f func(t *testing.T)) {
	t.Helper()
	if virtual {
		synctest.Test(t, f)
		return
	}
	f(t)
}

// exec runs the case against a backing of its own. It is given a testing.TB so
// that the suite can be tested itself.
func (c testCase) exec(tb testing.TB, h Harness) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the contract: %s", c.claim)
		}
	})
	checkGoroutines(tb)
	backing := h.New(tb)
	r := &run{TB: tb, backing: backing, virtual: h.Virtual}
	r.first = r.open()
	r.guarantees = r.first.Guarantees()
	r.have = offered(r.first.Store, backing)
	c.run(r)
}
