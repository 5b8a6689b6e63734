package once_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
)

// TestSkewedReplicas: five replicas whose clocks are apart by up to 5 s either way, and in every
// other period somewhere else, call in each of 200 periods, and again somewhere in it. The job is
// shorter than that: it runs 200 times, once for each period, also where a period is shorter than
// the difference.
func TestSkewedReplicas(t *testing.T) {
	const replicas, periods, skew = 5, 200, 5 * time.Second
	for _, period := range []time.Duration{24 * time.Hour, time.Minute, 12 * time.Second, 4 * time.Second} {
		t.Run(period.String(), func(t *testing.T) {
			storetest.Virtual(t, func(t *testing.T, store driver.Store) {
				var mu sync.Mutex
				runs := map[time.Time]int{} // by the begin of the period
				began := time.Now().Truncate(period).Add(2*period + time.Minute).Truncate(period)
				var group sync.WaitGroup
				for i := range replicas {
					locks := storetest.Client(t, store, fmt.Sprint("replica-", i))
					group.Go(func() {
						for n := range periods {
							off := time.Duration(i-replicas/2) * skew / (replicas / 2)
							if n%2 == 1 {
								off = rand.N(2*skew) - skew
							}
							now := func() time.Time { return time.Now().Add(off) }
							tick := began.Add(time.Duration(n) * period)
							for _, at := range []time.Time{tick, tick.Add(rand.N(period))} {
								time.Sleep(at.Sub(now()))
								o := &once.Options{Skew: 10 * time.Second}
								result, err := once.EveryBy(now, t.Context(), locks, "job", period, o, func(context.Context) error {
									time.Sleep(time.Millisecond)
									return nil
								})
								if err != nil {
									t.Error(err)
								}
								if result.Verdict == once.Ran {
									mu.Lock()
									runs[result.Slot.Start]++
									mu.Unlock()
								}
							}
						}
					})
				}
				group.Wait()
				for n := range periods {
					if got := runs[began.Add(time.Duration(n)*period).UTC()]; got != 1 {
						t.Errorf("%d runs in period %d", got, n)
					}
				}
				for start, n := range runs { // A clock that is ahead may have gone on.
					if n != 1 || start.Before(began) {
						t.Errorf("%d runs in the period of %v", n, start)
					}
				}
			})
		})
	}
}

// A slot of a year has one run; a slot is refused that is so far ahead that no mark lasts until its
// end.
func TestLongAndDistantSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := storetest.Client(t, memstore.New(), "")
		for _, days := range []time.Duration{360, 365, 366} {
			slot := once.Slot{Start: time.Now(), End: time.Now().Add(days * 24 * time.Hour)}
			runs := 0
			for ; time.Now().Before(slot.End); time.Sleep(6 * time.Hour) {
				if _, err := once.In(t.Context(), c, "yearly", slot, nil, func(context.Context) error { runs++; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if runs != 1 {
				t.Errorf("%d runs in one slot of %d days", runs, days)
			}
		}
		for _, years := range []int{1, 2, 295, 400} {
			start := time.Now().AddDate(years, 0, 0)
			_, err := once.In(t.Context(), c, "distant", once.Slot{Start: start, End: start.Add(time.Hour)}, nil, nothing)
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("a slot %d years ahead: %v", years, err)
			}
		}
	})
}
