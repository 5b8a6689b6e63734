package command

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// A lock that several hold is shown with how much of it is in use, and with all of its holds.
func TestSeveralHoldsAreShown(t *testing.T) {
	limited := lockview.NewLock([]holdfast.Record{
		{Name: "slots", Token: 4, Limit: 10, Kept: true, Remaining: time.Second, Waiting: 5},
		{Name: "slots", Holder: "a", Token: 5, Limit: 10, Waiting: 5},
		{Name: "slots", Holder: "b", Token: 6, Limit: 20, Remaining: time.Minute, Waiting: 5},
		{Name: "slots", Holder: "c", Token: 8, Limit: driver.Shared, Waiting: 5},
	})
	readers := lockview.NewLock([]holdfast.Record{
		{Name: "config", Holder: "a", Token: 1, Limit: driver.Shared},
		{Name: "config", Holder: "b", Token: 2, Limit: driver.Shared},
	})
	locks := []lockview.Lock{readers, {{Name: "plain", Holder: "h", Limit: 1}}, limited}
	want := strings.Join([]string{
		"NAME    HOLDER       AGE  LEFT       WAITING  TOKEN",
		"config  2 shared: a  -    no expiry           1",
		"plain   h            -    no expiry           -",
		"slots   4 of 10: a   -    no expiry  5        5\n",
	}, "\n")
	if got := string(formatTable(lockRows(locks), 0)); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	shown := string(lockFields(limited))
	for _, line := range []string{
		"in use   4 of 10\n", "waiting  5\n", "and      b, token 6, - ago, left 1m00s unless renewed\n", "and      (kept), token 4, - ago, left 1s\n",
	} {
		if !strings.Contains(shown, line) {
			t.Errorf("%q lacks %q", shown, line)
		}
	}
	view := limited.View()
	if view.Limit != 10 || view.Waiting != 5 || len(view.Others) != 3 || view.Others[0].Waiting != 0 || view.Others[2].Limit != 0 || !view.Others[2].Shared {
		t.Errorf("JSON: %+v", view)
	}
}
