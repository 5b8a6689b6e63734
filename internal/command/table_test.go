package command

import (
	"fmt"
	"slices"
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
			locks := []holdfast.Record{
				{Name: strings.Repeat("n", nameLength), Holder: "host/1234/ABCDEFGH", Token: 1795263959314838, Metadata: metadata,
					Since: now.Add(-time.Hour), Until: now.Add(time.Second), Remaining: time.Second},
				{Name: strings.Repeat("漢", nameLength/3+1), Kept: true},
				{Name: "foreign"},
			}
			for width := 1; width < 400; width++ {
				lines := tableLines(locks, width)
				if len(lines) != 4 {
					t.Fatalf("%d lines", len(lines))
				}
				for _, line := range lines {
					if cellWidth(line) > width {
						t.Errorf("at %d: %d: %q", width, cellWidth(line), line)
					}
				}
			}
			for _, line := range tableLines(locks, unlimitedWidth) {
				if strings.Contains(line, "…") {
					t.Errorf("%q was cut", line)
				}
			}
		}
	}
}

// What people look for is cut last, and nothing is cut that has room.
func TestTableCutsWhatMattersLeast(t *testing.T) {
	now := time.Now()
	locks := []holdfast.Record{{
		Name: "invoices/2026/11/42", Holder: "host/1234/ABCDEFGH", Token: 1795263959314838,
		Since: now.Add(-200 * time.Second), Until: now.Add(29 * time.Second), Remaining: 29 * time.Second,
		Metadata: map[string]string{"why": "nightly run"},
	}}
	for width, want := range map[int]string{
		100: `invoices/2026/11/42  host/1234/ABCDEFGH  1795263959314838  3m20s  29s   why="nightly run"`,
		79:  `invoices/2026/11/42  host/1234/ABCDEF…  1795263959314838  3m20s  29s   why="ni…`,
		70:  `invoices/2026/11/42  host/1234/ABCDEFGH  1795263959314838  3m20s  29s`,
		50:  `invoices/2026/11/42  host/1234/ABCDE…  3m20s  29s`,
		40:  `invoic…/11/42  host/1234/A…  3m20s  29s`,
	} {
		if got := tableLines(locks, width)[1]; got != want {
			t.Errorf("at %d:\n%s, want\n%s", width, got, want)
		}
	}
}

// In a terminal of 80 columns names that differ are shown so, by their ends, too.
func TestTableNamesDiffer(t *testing.T) {
	var locks []holdfast.Record
	for _, name := range []string{
		"invoices/2026-11/customer-4711/settlement", "invoices/2026-11/customer-4712/settlement",
		strings.Repeat("long/", 20) + "1", strings.Repeat("long/", 20) + "2",
	} {
		locks = append(locks, holdfast.Record{
			Name: name, Holder: "worker-7f9c5d8b6-x2x8p/1/QRZ7M2LK", Token: 1795263959314838, Remaining: time.Second, Waiting: 3,
			Metadata: map[string]string{"commit": "3f9c2e1"},
		})
	}
	lines := tableLines(locks[:2], 79)
	for i, rec := range locks[:2] {
		if !strings.HasPrefix(lines[i+1], rec.Name+"  worker-7f9c") {
			t.Errorf("a name of %d characters is cut: %q", len(rec.Name), lines[i+1])
		}
	}
	lines = tableLines(locks, 79)
	seen := map[string]bool{}
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "  ")
		if seen[name] {
			t.Errorf("two names are shown as %q", name)
		}
		seen[name] = true
	}
}

// In a terminal the names of applications are cut, and not what is behind them.
func TestAdvisoryTableFits(t *testing.T) {
	connected := time.Now().Add(-time.Hour)
	views := []advisoryView{
		{Key: "4611686018427387904", State: "held", PID: 81, Application: "holdfast " + strings.Repeat("host", 12), Connected: &connected},
		{Key: "17,42", State: "waiting", PID: 4711, Application: "psql", Connected: &connected, BlockedBy: []int32{81}},
	}
	lines := advisoryLines(views, 79)
	for _, line := range lines {
		if cellWidth(line) > 79 {
			t.Errorf("%d: %q", cellWidth(line), line)
		}
	}
	if len(lines) != 3 || !strings.HasSuffix(lines[0], "BLOCKED BY") || !strings.HasSuffix(lines[1], "…  1h00m") || !strings.HasSuffix(lines[2], "  1h00m      81") {
		t.Errorf("%q", lines)
	}
	if lines := advisoryLines(views, unlimitedWidth); !strings.Contains(lines[1], views[0].Application+"  1h00m") {
		t.Errorf("%q was cut", lines[1])
	}
}

func TestTableOfLittle(t *testing.T) {
	got := tableLines([]holdfast.Record{{Name: "a\x1b[2Jb", Holder: "\u202ex"}, {Name: "k", Kept: true, Token: 7}}, unlimitedWidth)
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

// The number of waiters is shown where a lock has any.
func TestWaitingIsShown(t *testing.T) {
	locks := []holdfast.Record{{Name: "a", Holder: "h", Waiting: 3}, {Name: "b", Holder: "h"}}
	want := []string{
		"NAME  HOLDER  TOKEN  AGE  LEFT       WAITING",
		"a     h       -      -    no expiry  3",
		"b     h       -      -    no expiry",
	}
	if got := tableLines(locks, unlimitedWidth); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := tableLines(locks[1:], unlimitedWidth)[0]; strings.Contains(got, "WAITING") {
		t.Errorf("%q, though there are none", got)
	}
	if got := string(recordFields(locks[0])); !strings.Contains(got, "waiting  3\n") {
		t.Errorf("%q does not show 3 that wait", got)
	}
	if got := lockview.NewView(locks[0]).Waiting; got != 3 {
		t.Errorf("%d in JSON, want 3", got)
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                 "0ms",
		999999 * time.Microsecond:         "999ms",
		59999 * time.Millisecond:          "59s",
		time.Minute:                       "1m00s",
		time.Hour - 1:                     "59m59s",
		3*time.Hour + 5*time.Minute:       "3h05m",
		24*time.Hour - 1:                  "23h59m",
		50 * time.Hour:                    "2d02h",
		365*24*time.Hour + 23*time.Minute: "365d00h",
	} {
		if got := lockview.ShortDuration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
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

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"日本", 4, "日本"}, {"日本", 3, "日…"}, {"日本", 2, "…"},
		{"e\u0301e\u0301", 2, "e\u0301e\u0301"}, {"abc", 1, "…"}, {"", 0, ""},
	} {
		if got := truncateCells(test.text, test.most); got != test.want || cellWidth(got) > test.most {
			t.Errorf("cut(%q, %d) = %q, want %q", test.text, test.most, got, test.want)
		}
	}
}

func TestCutMiddle(t *testing.T) {
	for _, test := range []struct {
		text string
		most int
		want string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdefg", 6, "ab…efg"}, {"abcdefg", 5, "ab…fg"}, {"日本日本", 5, "日…本"}, {"日本", 1, "…"}, {"", 0, ""},
	} {
		if got := truncateMiddle(test.text, test.most); got != test.want || cellWidth(got) > test.most {
			t.Errorf("cut(%q, %d) = %q, want %q", test.text, test.most, got, test.want)
		}
	}
}

// A year-old hold on a store whose clock is not ours has the age that the store
// gives it.
func TestAgeIsByTheClockOfTheStore(t *testing.T) {
	there := time.Now().Add(-42 * time.Hour)
	rec := holdfast.Record{Since: there.Add(-time.Minute), Until: there.Add(10 * time.Second), Remaining: 10 * time.Second}
	if got, ok := lockview.Age(rec); !ok || got != time.Minute {
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
		{holdfast.Record{Until: time.Now()}, "0ms", "0ms unless renewed"},
		{holdfast.Record{Until: time.Now(), Remaining: -time.Second, Kept: true}, "0ms", "0ms"},
	} {
		if got := recordRow(test.rec)[leftColumn]; got != test.row {
			t.Errorf("ls shows %q, want %q: %+v", got, test.row, test.rec)
		}
		if got := string(recordFields(test.rec)); !strings.HasSuffix(got, "\nleft   "+test.show+"\n") {
			t.Errorf("show shows %q, want %q: %+v", got, test.show, test.rec)
		}
	}
}

func Example_jsonLine() {
	line, _ := jsonLine(lockview.NewView(holdfast.Record{Name: "a<b\u009b\U000e0001", Token: 1}))
	fmt.Print(string(line))
	// Output: {"name":"a<b\u009b\udb40\udc01","state":"held","token":1}
}
