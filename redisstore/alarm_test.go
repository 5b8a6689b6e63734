package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An alarm goes off when its deadline has passed, soon, and is shared by those
// whose deadlines are near each other; then nothing is left of it.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a alarms
		began := time.Now()
		a.at(began) // The grains are counted from here.
		channels := map[<-chan struct{}]bool{}
		for after := -time.Second; after <= time.Second; after += 7 * time.Millisecond {
			deadline := began.Add(3*time.Second + after)
			over := a.at(deadline)
			channels[over] = true
			go func() {
				<-over
				if late := time.Since(deadline); late < 0 || late >= alarmGrain {
					t.Errorf("the alarm for %v goes off %v late", deadline.Sub(began), late)
				}
			}()
		}
		if most := int(2*time.Second/alarmGrain) + 1; len(channels) > most {
			t.Errorf("there are %d alarms in 2 s, want %d", len(channels), most)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(a.over) != 0 {
			t.Errorf("%d alarms that went off are remembered", len(a.over))
		}
		select {
		case <-a.at(began):
			t.Error("an alarm that is overdue went off before it was set")
		default:
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(a.over) != 0 {
			t.Error("an alarm that is overdue does not go off at once")
		}
	})
}

// A request ends at its deadline, and is not cancelled before with the context that
// it has its values from.
func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		values, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		cancel()
		deadline := time.Now().Add(time.Second)
		ctx := new(lane).limit(values, deadline)
		if got, ok := ctx.Deadline(); !ok || got != deadline {
			t.Errorf("the deadline is %v (%v)", got, ok)
		}
		if ctx.Value(key{}) != "value" {
			t.Error("it has not the values")
		}
		under, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		time.Sleep(time.Second - time.Nanosecond)
		if ctx.Err() != nil || under.Err() != nil {
			t.Errorf("before the deadline: %v, %v", ctx.Err(), under.Err())
		}
		time.Sleep(alarmGrain)
		synctest.Wait()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(under.Err(), context.DeadlineExceeded) {
			t.Errorf("after the deadline: %v, %v", ctx.Err(), under.Err())
		}
	})
}
