package filestore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// TestRenewSome: one record that cannot be renewed is no reason not to renew the
// others, and its error does not speak for them.
func TestRenewSome(t *testing.T) {
	s := openTest(t, t.TempDir())
	var reqs []olddriver.RenewRequest
	for _, name := range []string{"a", "bad", "b", "gone"} {
		req, _ := granted(t, s, name, time.Minute)
		reqs = append(reqs, olddriver.RenewRequest{Name: name, Owner: req.Owner, TTL: time.Hour})
	}
	writeFile(t, s.recordPath("bad"), "garbage")
	if _, _, err := s.Break(t.Context(), olddriver.BreakRequest{Name: "gone"}); err != nil {
		t.Fatal(err)
	}
	outcomes, err := s.Renew(t.Context(), reqs)
	want := []olddriver.RenewOutcome{olddriver.Renewed, olddriver.RenewUnknown, olddriver.Renewed, olddriver.RenewLost}
	if !slices.Equal(outcomes, want) {
		t.Errorf("the outcomes are %v, want %v", outcomes, want)
	}
	if err == nil || driver.IsNotApplied(err) || !strings.Contains(err.Error(), s.recordPath("bad")) {
		t.Errorf("the error is %v", err)
	}
	if rec := refused(t, s, "b"); rec.Remaining <= time.Minute {
		t.Errorf("of the hold after the bad one there remain %v", rec.Remaining)
	}
}

// TestRenewNone: an error that is true of all says what it says of one.
func TestRenewNone(t *testing.T) {
	s := openTest(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reqs := []olddriver.RenewRequest{{Name: "a", Owner: "x", TTL: time.Hour}, {Name: "b", Owner: "x", TTL: time.Hour}}
	outcomes, err := direct{s}.Renew(ctx, reqs)
	if !slices.Equal(outcomes, []olddriver.RenewOutcome{olddriver.RenewUnknown, olddriver.RenewUnknown}) {
		t.Errorf("the outcomes are %v", outcomes)
	}
	wantError(t, err, context.Canceled)
	wantError(t, err, driver.ErrNotApplied)
	inDoubt := errors.New("in doubt")
	if err := renewError([]error{driver.NotApplied(context.Canceled), inDoubt}, 2); driver.IsNotApplied(err) || !errors.Is(err, inDoubt) {
		t.Errorf("the error of one not applied and one in doubt is %v", err)
	}
}
