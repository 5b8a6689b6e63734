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
	name     string
	claim    string   // one sentence, printed when the case fails
	requires features // must be available for the case to be run
	without  features // must not be available
	run      func(r *caseRun)
}

// A caseGroup is a group of cases, in one file of this package.
type caseGroup struct {
	name  string
	cases []testCase
}

// caseGroups returns all cases.
func caseGroups() []caseGroup {
	return []caseGroup{
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
		{"queue", queueCases},
		{"shared", sharedCases},
		{"claims", claimsCases},
		{"notices", noticesCases},
		{"names", namesCases},
		{"contexts", contextsCases},
		{"concurrency", concurrencyCases},
		{"closing", closingCases},
		{"faults", faultsCases},
		{"strangers", strangersCases},
	}
}

// Run tests a store against the contract of package driver. It returns when
// all cases are done.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil {
		t.Fatal("drivertest: Harness.New is nil")
	}
	have := probeFeatures(t, h)
	untested := untestedCases{}
	for _, group := range caseGroups() {
		var cases []testCase
		for _, c := range group.cases {
			if lacking := c.requires &^ have; lacking != 0 {
				untested[lacking.missingReasons()] = append(untested[lacking.missingReasons()], group.name+"/"+c.name)
			} else if c.without&have == 0 {
				cases = append(cases, c)
			}
		}
		if h.Walk {
			cases = cases[:min(1, len(cases))]
		}
		if len(cases) > 0 {
			t.Run(group.name, func(t *testing.T) { runCases(t, h, have, cases) })
		}
	}
	if len(untested) > 0 {
		t.Logf("not tested here:%s", untested)
	}
}

// untestedCases has the names of cases that were not run, by reason.
type untestedCases map[string][]string

func (u untestedCases) String() string {
	var text strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(u)) {
		fmt.Fprintf(&text, "\n\t%s: %s", reason, strings.Join(u[reason], ", "))
	}
	return text.String()
}

func runCases(t *testing.T, h Harness, have features, cases []testCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if !h.Serial {
				t.Parallel()
			}
			inBubble(t, h.Virtual, func(t *testing.T) { c.execute(t, h, have) })
		})
	}
}

// probeFeatures opens a store to find the features that it and its harness have.
func probeFeatures(t *testing.T, h Harness) features {
	t.Helper()
	var have features
	inBubble(t, h.Virtual, func(t *testing.T) {
		backing := h.New(t)
		if backing.Open == nil {
			t.Fatal("drivertest: Harness.New returned a Backing without Open")
		}
		store := backing.Open(t)
		have = available(t.Context(), store, backing)
		if err := store.Close(); err != nil {
			t.Errorf("Close of an unused store: %v", err)
		}
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

// execute runs the case against a backing of its own. It takes a testing.TB, and not a
// *testing.T, so that the suite can itself be tested.
func (c testCase) execute(tb testing.TB, h Harness, have features) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the contract: %s", c.claim)
		}
	})
	checkGoroutines(tb)
	backing := h.New(tb)
	r := &caseRun{TB: tb, backing: backing, virtual: h.Virtual, features: have}
	r.first = r.openStore()
	r.guarantees = r.first.Guarantees()
	c.run(r)
}
