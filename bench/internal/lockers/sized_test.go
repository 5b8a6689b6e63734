//go:build unix

package lockers

import "testing"

// Each size of the first contender is compared with its base size. Each of another one is compared
// with the first contender in that size. A worker can open all of them.
func TestSized(t *testing.T) {
	all := Sized(Redis()[:2], "held", 1_000, 1, 1_000, 1_000_000)
	want := [][2]string{
		{"Holdfast, 1 held", "Holdfast, 1,000 held"}, {"Holdfast, 1,000 held", "Holdfast, 1,000 held"},
		{"Holdfast, 1,000,000 held", "Holdfast, 1,000 held"}, {"rueidislock, 1 held", "Holdfast, 1 held"},
		{"rueidislock, 1,000 held", "Holdfast, 1,000 held"}, {"rueidislock, 1,000,000 held", "Holdfast, 1,000,000 held"},
	}
	for i, c := range all {
		if i >= len(want) || c.Name != want[i][0] || c.Against != want[i][1] {
			t.Fatalf("contender %d of %d is %q against %q", i, len(all), c.Name, c.Against)
		}
		if _, ok := Find(c.Base); !ok {
			t.Errorf("%q is no contender", c.Base)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d contenders, want %d", len(all), len(want))
	}
}
