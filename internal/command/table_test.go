package command

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// TestTable: a table shows nothing that a terminal might take for a command, leaves out columns
// without content, and is cut where that is asked for.
func TestTable(t *testing.T) {
	locks := []lockview.Lock{{{Name: "a\x1b[2Jb", Holder: "\u202ex"}}, {{Name: "k", Kept: true, Token: 7}}}
	whole := `NAME       HOLDER   AGE  LEASE      TOKEN
a\x1b[2Jb  \u202ex  -    no expiry  -
k          (kept)   -    no expiry  7
`
	if got := string(formatTable(lockRows(locks), 0)); got != whole {
		t.Errorf("%s, want\n%s", got, whole)
	}
	for width := 1; width < 50; width++ {
		for line := range strings.Lines(string(formatTable(lockRows(locks), width))) {
			if n := utf8.RuneCountInString(line) - 1; n > width {
				t.Errorf("at %d: %q", width, line)
			}
		}
	}
}

// A terminal of 80 columns shows the holder and the age of a lock with a usual name, and of one
// beside it whose name is as long as names can be.
func TestNarrowTerminal(t *testing.T) {
	usual := holdfast.Record{
		Name: "invoices/eu-central/42", Holder: "ip-10-0-12-34/123456/VYIU66MM", Token: 1795263959271324, Waiting: 3,
		Since: time.Now().Add(-time.Minute), Remaining: 25 * time.Second, Metadata: map[string]string{"why": "the monthly run of all invoices"},
	}
	long := usual
	long.Name, long.Holder = strings.Repeat("name", 60), strings.Repeat("holder", 40)
	for _, locks := range [][]lockview.Lock{{{usual}}, {{usual}, {long}}} {
		if got := string(formatTable(lockRows(locks), 79)); strings.Count(got, "  1m00s  25s ") != len(locks) || !strings.Contains(got, usual.Holder) {
			t.Errorf("\n%s", got)
		}
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
		if got := recordRow(test.rec)[leaseColumn]; got != test.row {
			t.Errorf("ls shows %q, want %q: %+v", got, test.row, test.rec)
		}
		if got := string(lockFields(lockview.Lock{test.rec})); !strings.HasSuffix(got, "\nlease  "+test.show+"\n") {
			t.Errorf("show shows %q, want %q: %+v", got, test.show, test.rec)
		}
	}
}

func Example_jsonLine() {
	fmt.Print(string(jsonLine(lockview.NewView(holdfast.Record{Name: "a<b\u009b\U000e0001", Token: 1}))))
	// Output: {"name":"a<b\u009b\udb40\udc01","state":"held","token":1}
}
