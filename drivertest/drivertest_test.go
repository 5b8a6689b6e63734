package drivertest

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// The correct store passes, whatever it claims, in virtual time and in real.
func TestCorrectStore(t *testing.T) {
	for name, claims := range map[string]driver.Guarantees{
		"everything":       everything,
		"nothing":          nothing,
		"restart frees":    restartFrees,
		"crash frees":      crashFrees,
		"without fencing":  without(fencing),
		"without fair":     without(fair),
		"without lookup":   without(lookup),
		"without list":     without(list),
		"without break":    without(breaking),
		"without metadata": without(metadata),
		"without keep":     without(keep),
		"without detached": without(detached),
		"one process":      without(processes),
		"coarse":           coarse,
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Harness{Virtual: true, New: func(testing.TB) Backing { return newModel(claims, noBug).backing() }})
		})
	}
}

// A store that cannot notify passes, too.
func TestStoreWithoutNotices(t *testing.T) {
	Run(t, Harness{Virtual: true, New: func(testing.TB) Backing { return newModel(without(fair), cannotNotify).backing() }})
}

func TestRealTime(t *testing.T) {
	Run(t, Harness{New: func(testing.TB) Backing { return newModel(everything, noBug).backing() }})
}
