package command

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// TestTable: a table shows nothing that a terminal might take for a command, leaves out columns
// without content, and is cut where that is asked for, long names before all. A hold that never
// expires differs from one in its last millisecond.
func TestTable(t *testing.T) {
	locks := []lockview.Lock{{{Name: "a\x1b[2Jb", Holder: "\u202ex"}}, {{Name: "k", Kept: true, Token: 7}}, {{Name: "l", Holder: "y", Remaining: 1}}}
	whole := `NAME       HOLDER   AGE  LEASE      TOKEN
a\x1b[2Jb  \u202ex  -    no expiry  -
k          (kept)   -    no expiry  7
l          y        -    0ms        -
`
	if got := string(formatTable(lockRows(locks), 0)); got != whole {
		t.Errorf("%s, want\n%s", got, whole)
	}
	locks = append(locks, lockview.Lock{{Name: strings.Repeat("long", 50), Holder: strings.Repeat("x", 99), Token: 8}})
	if got := string(formatTable(lockRows(locks), 79)); !strings.Contains(got, "  -    no ") {
		t.Errorf("what is behind a long name is cut:\n%s", got)
	}
	for width := 1; width < 80; width++ {
		for line := range strings.Lines(string(formatTable(lockRows(locks), width))) {
			if n := utf8.RuneCountInString(line) - 1; n > width {
				t.Errorf("at %d: %q", width, line)
			}
		}
	}
}

func Example_jsonLine() {
	fmt.Print(string(jsonLine(lockview.NewView(holdfast.Record{Name: "a<b\u009b\U000e0001", Token: 1}))))
	// Output: {"name":"a<b\u009b\udb40\udc01","state":"held","token":1}
}
