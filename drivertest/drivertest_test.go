package drivertest

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// claiming returns the claims of a store that does everything, changed.
func claiming(change func(g *driver.Guarantees)) driver.Guarantees {
	g := everything
	change(&g)
	return g
}

// A correct store passes, whatever it claims.
func TestCorrectStore(t *testing.T) {
	for name, claims := range map[string]driver.Guarantees{
		"everything":      everything,
		"nothing":         {Store: "model", Crash: driver.FateKept, Restart: driver.FateKept, Failover: driver.FateKept},
		"restart frees":   claiming(func(g *driver.Guarantees) { g.Restart = driver.FateFreed }),
		"crash frees":     claiming(func(g *driver.Guarantees) { g.Crash = driver.FateFreed }),
		"without fencing": claiming(func(g *driver.Guarantees) { g.Fencing, g.Tokens = false, 0 }),
		"without queue":   claiming(func(g *driver.Guarantees) { g.Queue = false }),
		"without limits":  claiming(func(g *driver.Guarantees) { g.Limits = false }),
		"without keep":    claiming(func(g *driver.Guarantees) { g.Keep = false }),
		"one token":       claiming(func(g *driver.Guarantees) { g.Tokens = 1 }),
		"coarse":          coarse,
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, (&bug{bare: name == "nothing"}).harness(claims))
		})
	}
	t.Run("quiet", func(t *testing.T) { Run(t, (&bug{quiet: true}).harness(everything)) })
}

var coarse = claiming(func(g *driver.Guarantees) { g.Grain = 700 * time.Millisecond })

// A walk runs one case of each theme, in real time here.
func TestRealTime(t *testing.T) {
	h := (&bug{}).harness(everything)
	h.Virtual, h.Walk = false, true
	Run(t, h)
}
