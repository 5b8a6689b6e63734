package command

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

func TestTableFits(t *testing.T) {
	now := time.Now()
	for _, nameLength := range []int{1, 20, 200} {
		for _, metadata := range []map[string]string{nil, {"why": "x"}, {"why": strings.Repeat("y", 300)}} {
			locks := []lockview.Lock{
				{{Name: strings.Repeat("n", nameLength), Holder: "host/1234/ABCDEFGH", Token: 1795263959314838, Metadata: metadata,
					Since: now.Add(-time.Hour), Remaining: time.Second}},
				{{Name: strings.Repeat("漢", nameLength/3+1), Kept: true}},
				{{Name: "foreign"}},
			}
			for width := 1; width < 400; width++ {
				lines := tableLines(lockRows(locks), lockCuts, width)
				if len(lines) != 4 {
					t.Fatalf("%d lines", len(lines))
				}
				for _, line := range lines {
					if cellWidth(line) > width {
						t.Errorf("at %d: %d: %q", width, cellWidth(line), line)
					}
				}
			}
			for _, line := range tableLines(lockRows(locks), lockCuts, unlimitedWidth) {
				if strings.Contains(line, "…") {
					t.Errorf("%q was cut", line)
				}
			}
		}
	}
}

func TestTableOfLittle(t *testing.T) {
	locks := []lockview.Lock{{{Name: "a\x1b[2Jb", Holder: "\u202ex"}}, {{Name: "k", Kept: true, Token: 7}}}
	got := tableLines(lockRows(locks), lockCuts, unlimitedWidth)
	want := []string{
		`NAME        HOLDER   TOKEN  AGE  LEFT`,
		`a\x1b[2Jb   \u202ex  -      -    no expiry`,
		`k           (kept)   7      -    no expiry`,
	}
	for i := range want {
		if strings.Join(strings.Fields(got[i]), " ") != strings.Join(strings.Fields(want[i]), " ") {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}

func TestReadable(t *testing.T) {
	for text, want := range map[string]string{
		"plain/name 🔒 日本 ü":  "plain/name 🔒 日本 ü",
		"a\x00\x1b\n\x7f":    `a\x00\x1b\n\x7f`,
		"bad \xff utf-8":     `bad \xff utf-8`,
		"c1 \u009b":          `c1 \u009b`,
		"\u202egnp.exe":      `\u202egnp.exe`,
		`back\slash "quote"`: `back\slash "quote"`,
	} {
		if got := lockview.Readable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	if got, ok := lockview.Age(holdfast.Record{Since: time.Now().Add(-time.Minute)}); !ok || got.Round(10*time.Second) != time.Minute {
		t.Errorf("%v, %v", got, ok)
	}
	if got, ok := lockview.Age(holdfast.Record{Since: time.Now().Add(time.Hour)}); !ok || got != 0 {
		t.Errorf("from the future: %v, %v", got, ok)
	}
	if _, ok := lockview.Age(holdfast.Record{}); ok {
		t.Error("an unknown age")
	}
}

// A hold that never expires differs from one in its last millisecond.
func TestTimeLeft(t *testing.T) {
	for _, test := range []struct {
		rec       holdfast.Record
		row, show string
	}{
		{holdfast.Record{}, "no expiry", "no expiry"},
		{holdfast.Record{Kept: true}, "no expiry", "no expiry"},
		{holdfast.Record{Remaining: 29 * time.Second}, "29s", "29s unless renewed"},
		{holdfast.Record{Remaining: 29 * time.Second, Kept: true}, "29s", "29s"},
		{holdfast.Record{Remaining: 1}, "0ms", "0ms unless renewed"},
		{holdfast.Record{Remaining: 1, Kept: true}, "0ms", "0ms"},
	} {
		if got := recordRow(test.rec)[leftColumn]; got != test.row {
			t.Errorf("ls shows %q, want %q: %+v", got, test.row, test.rec)
		}
		if got := string(lockFields(lockview.Lock{test.rec})); !strings.HasSuffix(got, "\nleft   "+test.show+"\n") {
			t.Errorf("show shows %q, want %q: %+v", got, test.show, test.rec)
		}
	}
}

func Example_jsonLine() {
	line, _ := jsonLine(lockview.NewView(holdfast.Record{Name: "a<b\u009b\U000e0001", Token: 1}))
	fmt.Print(string(line))
	// Output: {"name":"a<b\u009b\udb40\udc01","state":"held","token":1}
}
