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
	needs features // without them the case is not run
	claim string   // is printed when the case fails
	run   func(r *caseRun)
}

// A theme is a promise of the contract with its cases, in one file of this package.
type theme struct {
	name  string
	cases []testCase
}

// themes returns all cases.
func themes() []theme {
	return []theme{
		{"guarantees", guaranteesCases},
		{"exclusion", exclusionCases},
		{"time", timeCases},
		{"tokens", tokensCases},
		{"renew", renewCases},
		{"release", releaseCases},
		{"keep", keepCases},
		{"queue", queueCases},
		{"waiting", waitingCases},
		{"limits", limitsCases},
		{"break", breakCases},
		{"lookup", lookupCases},
		{"list", listCases},
		{"notices", noticesCases},
		{"detached", detachedCases},
		{"names", namesCases},
		{"contexts", contextsCases},
		{"concurrency", concurrencyCases},
		{"closing", closingCases},
		{"faults", faultsCases},
		{"strangers", strangersCases},
	}
}

// Run tests a store against the contract of package driver. It returns when all cases are done.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil {
		t.Fatal("drivertest: Harness.New is nil")
	}
	have := probe(t, h)
	selected, untested := h.selection(have)
	t.Run("contract", func(t *testing.T) { // It ends when all cases are done.
		for _, theme := range selected {
			t.Run(theme.name, func(t *testing.T) { runCases(t, h, have, theme.cases) })
		}
	})
	if len(untested) > 0 {
		var text strings.Builder
		for _, reason := range slices.Sorted(maps.Keys(untested)) {
			fmt.Fprintf(&text, "\n\t%s: %s", reason, strings.Join(untested[reason], ", "))
		}
		t.Logf("not tested here:%s", &text)
	}
}

// selection returns the cases that are run for a store with these features, and the names of the
// others by reason.
func (h Harness) selection(have features) (selected []theme, untested map[string][]string) {
	untested = map[string][]string{}
	for _, all := range themes() {
		var cases []testCase
		for _, c := range all.cases {
			name := all.name + "/" + c.name
			if lacking := c.needs &^ have; lacking != 0 {
				untested[lacking.String()] = append(untested[lacking.String()], name)
			} else {
				cases = append(cases, c)
			}
		}
		if h.Walk {
			cases = cases[:min(1, len(cases))]
		}
		if len(cases) > 0 {
			selected = append(selected, theme{all.name, cases})
		}
	}
	return selected, untested
}

func runCases(t *testing.T, h Harness, have features, cases []testCase) {
	if !h.Virtual {
		t.Parallel() // No theme waits for the slowest case of another one.
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if !h.Virtual {
				t.Parallel()
			}
			inBubble(t, h.Virtual, func(t *testing.T) { c.execute(t, h, have) })
		})
	}
}

// probe opens stores to find the features that they and their harness have.
func probe(t *testing.T, h Harness) (have features) {
	t.Helper()
	inBubble(t, h.Virtual, func(t *testing.T) {
		backing := h.New(t)
		if backing.Open == nil {
			t.Fatal("drivertest: Harness.New returned a Backing without Open")
		}
		have = available(newCaseRun(t, h, backing))
	})
	if t.Failed() {
		t.FailNow()
	}
	return have
}

// inBubble runs f, in a bubble of testing/synctest if virtual is set.
func inBubble(t *testing.T, virtual bool, f func(t *testing.T)) {
	t.Helper()
	if virtual {
		synctest.Test(t, f)
		return
	}
	f(t)
}

// execute runs the case against a backing of its own. It takes a testing.TB, and not a *testing.T,
// so that the suite can itself be tested.
func (c testCase) execute(tb testing.TB, h Harness, have features) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the contract: %s", c.claim)
		}
	})
	checkGoroutines(tb)
	r := newCaseRun(tb, h, h.New(tb))
	r.features = have
	c.run(r)
}
