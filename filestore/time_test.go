package filestore

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Containers that have a boot id of their own exclude each other, also while a step of the wall
// clock makes the boot of the one look like another, and tokens rise over both.
func TestContainersWithBootIDs(t *testing.T) {
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
		f, dir, last := newFakeHost(), t.TempDir(), int64(0)
		one, other := f.host(), f.host()
		other.boot = "of its own"
		a := openTestOn(t, one, dir)
		rises(t, "in one container", &last, next(t, a, "name"))
		held, _ := granted(t, a, "held", 24*time.Hour)
		f.step(step)
		b := openTestOn(t, other, dir)
		refused(t, b, "held")
		for range 3 {
			rises(t, "in the other container", &last, next(t, b, "name"))
			f.pass(time.Millisecond)
			rises(t, "in one container", &last, next(t, a, "name"))
			f.pass(time.Millisecond)
		}
		refused(t, a, "held")
		f.pass(time.Hour)
		if ok, err := a.Release(t.Context(), driver.ReleaseRequest{Name: "held", Owner: held.Owner, Keep: time.Hour}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		refused(t, b, "held") // It is kept long after the step.
		if _, err := b.Break(t.Context(), "held", 0); err != nil {
			t.Fatal(err)
		}
		mine, _ := granted(t, b, "held", time.Hour)
		refused(t, a, "held")
		released(t, b, mine)
	}
}

// On a host whose clock begins at the same time of day at each boot, an earlier boot is not taken
// for this one, if this one has not lasted longer: tokens rise over a power loss, and no hold and
// no keep is left.
func TestNoBattery(t *testing.T) {
	f, dir, last := newFakeHost(), t.TempDir(), int64(0)
	began := f.wall.Load() - f.up.Load()
	s := openTestOn(t, f.host(), dir)
	rises(t, "in the first boot", &last, next(t, s, "name"))
	f.pass(5 * time.Minute)
	rises(t, "in the first boot, later,", &last, next(t, s, "name"))
	for _, name := range []string{"detached", "kept"} {
		req := request(name, time.Hour)
		req.Detached = true
		grantedTo(t, s, req)
		if name == "kept" {
			if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner, Keep: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Session().Close()
	writeFile(t, s.pathOf("name"), f.flushed[s.pathOf("name")])
	for _, file := range files(t, dir) {
		at := f.host().wall()
		if err := os.Chtimes(filepath.Join(dir, file), at, at); err != nil {
			t.Fatal(err)
		}
	}
	f.boots++
	f.up.Store(int64(2 * time.Second))
	f.wall.Store(began + f.up.Load())
	after := openTestOn(t, f.host(), dir)
	rises(t, "in the next boot", &last, next(t, after, "name"))
	for _, name := range []string{"detached", "kept"} {
		granted(t, after, name, time.Hour)
	}
}
