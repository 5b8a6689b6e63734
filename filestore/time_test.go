package filestore

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// TestWallClockSteps: no step of the wall clock ends or prolongs a hold.
func TestWallClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
		f, dir := newFakeHost(), t.TempDir()
		s := openTestOn(t, f.host(), dir)
		req, _ := granted(t, s, "name", time.Minute)
		f.step(step)
		if rec := refused(t, s, "name"); rec.Remaining != time.Minute {
			t.Errorf("after a step of %v there remain %v", step, rec.Remaining)
		}
		f.pass(time.Minute - time.Nanosecond)
		refused(t, openTestOn(t, f.host(), dir), "name")
		f.pass(time.Nanosecond)
		outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: time.Minute}})
		if err != nil || outcomes[0] != olddriver.RenewLost {
			t.Errorf("a hold that has run out is renewed: %v, %v", outcomes, err)
		}
		granted(t, s, "name", time.Minute)
	}
}

// TestReboot: holds and keeps of another boot are over, even if the clock of
// this boot is behind their expiry.
func TestReboot(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s := openTestOn(t, f.host(), dir)
	held, first := granted(t, s, "held", time.Hour)
	kept, _ := granted(t, s, "kept", time.Hour)
	if ok, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: "kept", Owner: kept.Owner, Keep: time.Hour}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	refused(t, s, "held")
	refused(t, s, "kept")
	f.reboot()
	after := openTestOn(t, f.host(), dir)
	for rec, err := range after.List(t.Context(), "") {
		t.Errorf("after the reboot List yields %+v, %v", rec, err)
	}
	if ok, err := after.Release(t.Context(), olddriver.ReleaseRequest{Name: "held", Owner: held.Owner}); ok || err != nil {
		t.Errorf("a hold of another boot is released: %v, %v", ok, err)
	}
	if _, token := granted(t, after, "held", time.Hour); token <= first {
		t.Errorf("after the reboot the token %d is granted, after %d", token, first)
	}
	granted(t, after, "kept", time.Hour)
}
