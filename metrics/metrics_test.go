package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/metrics"
)

// There are at most MaxGroups groups and one for the rest, however many names and events there are.
// The group of a name stays the same.
func TestGroupsAreLimited(t *testing.T) {
	groups := metrics.NewGroups(metrics.FirstSegment)
	var mu sync.Mutex
	first := map[string]string{}
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 20 { // Repeated events count once.
				for i := range 10 * metrics.MaxGroups {
					name := fmt.Sprintf("tenant-%d/%d", i, i)
					group := groups.Of(name)
					mu.Lock()
					if before, ok := first[name]; ok && before != group {
						t.Errorf("%s is in group %q, and was in %q", name, group, before)
					}
					first[name] = group
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	distinct := map[string]int{}
	for _, group := range first {
		distinct[group]++
	}
	if len(distinct) != metrics.MaxGroups+1 || distinct[metrics.Other] != 9*metrics.MaxGroups {
		t.Errorf("%d groups, %d names in %q", len(distinct), distinct[metrics.Other], metrics.Other)
	}
}

// A Grouping that cuts a name in the middle of a character still has groups that are text: the
// libraries of metrics refuse others, and that of Prometheus panics.
func TestGroupings(t *testing.T) {
	known := metrics.OneOf("report", "import")
	cut := func(name string) string { return name[:3] }
	for _, test := range []struct {
		grouping   metrics.Grouping
		name, want string
	}{
		{nil, "invoices/42", ""},
		{metrics.FirstSegment, "invoices/42", "invoices"},
		{metrics.FirstSegment, "invoice:42/7", "invoice"},
		{metrics.FirstSegment, "report", "report"},
		{metrics.FirstSegment, "/42", ""},
		{known, "import", "import"},
		{known, "imports", metrics.Other},
		{cut, "abä", "ab\uFFFD"},
		{cut, "abö", "ab\uFFFD"},
	} {
		if got := metrics.NewGroups(test.grouping).Of(test.name); got != test.want {
			t.Errorf("the group of %q is %q, want %q", test.name, got, test.want)
		}
	}
}

// Each kind of event has its words, and no other.
func TestWords(t *testing.T) {
	join := func(errs ...error) error { return fmt.Errorf("holdfast: %w", errors.Join(errs...)) }
	lost := func(reason error) error { return &holdfast.LostError{Reason: reason} }
	for _, test := range []struct {
		kind holdfast.EventKind
		err  error
		want string // Outcome, End, Renewal, ErrorType
	}{
		{holdfast.EventAcquired, nil, "acquired,,,"},
		{holdfast.EventJoined, nil, "acquired,,,"},
		{holdfast.EventRefused, join(&holdfast.HeldError{}), "held,,,held"},
		{holdfast.EventRefused, join(context.DeadlineExceeded, &holdfast.HeldError{}), "timeout,,,held"},
		{holdfast.EventRefused, join(context.Canceled, &holdfast.HeldError{}), "canceled,,,held"},
		{holdfast.EventFailed, join(holdfast.ErrUnavailable), "error,,,unavailable"},
		{holdfast.EventFailed, join(context.DeadlineExceeded, holdfast.ErrUnavailable), "error,,,unavailable"},
		{holdfast.EventFailed, join(context.Canceled, holdfast.ErrUnavailable), "canceled,,,unavailable"},
		{holdfast.EventFailed, join(holdfast.ErrClosed), "canceled,,,closed"},
		{holdfast.EventFailed, join(holdfast.ErrCorrupt), "error,,,corrupt"},
		{holdfast.EventReleased, nil, ",released,,"},
		{holdfast.EventReleased, join(holdfast.ErrUnavailable), ",released,,unavailable"},
		{holdfast.EventKept, nil, ",kept,,"},
		{holdfast.EventHandedOver, nil, ",handed_over,,"},
		{holdfast.EventLost, lost(holdfast.ErrExpired), ",expired,lost,lost"},
		{holdfast.EventLost, lost(holdfast.ErrTaken), ",taken,lost,lost"},
		{holdfast.EventLost, lost(holdfast.ErrMaxHold), ",max_hold,,lost"},
		{holdfast.EventRenewed, nil, ",,renewed,"},
		{holdfast.EventInDoubt, join(holdfast.ErrUnavailable), ",,in_doubt,unavailable"},
		{holdfast.EventWaiting, nil, ",,,"},
		{holdfast.EventWaited, join(holdfast.ErrHeld), ",,,held"},
		{holdfast.EventRequest, errors.New("unknown"), ",,,_OTHER"},
	} {
		e := holdfast.Event{Kind: test.kind, Err: test.err}
		got := strings.Join([]string{metrics.Outcome(e), metrics.End(e), metrics.Renewal(e), metrics.ErrorType(e.Err)}, ",")
		if got != test.want {
			t.Errorf("%v with %v has the words %q, want %q", test.kind, test.err, got, test.want)
		}
	}
}
