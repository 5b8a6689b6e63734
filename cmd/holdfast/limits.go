package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// limitFlags are the flags for a lock that several can hold at once.
type limitFlags struct {
	shared        bool
	limit, weight int
}

func (l *limitFlags) addTo(f *pflag.FlagSet) {
	f.BoolVarP(&l.shared, "shared", "s", false, "hold the lock together with others that do so:\n"+
		"as a reader, where one without it is a writer")
	f.IntVar(&l.limit, "limit", 0, "hold the lock together with others, up to `N`\n"+
		"of them: one of N slots")
	f.IntVar(&l.weight, "weight", 0, "how many of the --limit slots to take (default\n"+
		"1)")
}

func (l *limitFlags) apply(o *holdfast.Options) {
	o.Shared, o.Limit, o.Weight = l.shared, l.limit, l.weight
}

// usage returns how much of a lock is held: "2 of 10" slots, or "3 shared" holds, and "" for an
// exclusive hold.
func usage(rec holdfast.Record) string {
	used, limit := 0, 0
	for _, hold := range eachHold(rec) {
		if hold.Limit > 0 {
			used += hold.Weight
			limit = max(limit, hold.Limit)
		}
	}
	switch {
	case limit > 0:
		return fmt.Sprintf("%d of %d", used, limit)
	case rec.Limit == driver.Shared:
		return fmt.Sprintf("%d shared", 1+len(rec.Others))
	}
	return ""
}

// eachHold returns the holds of a lock.
func eachHold(rec holdfast.Record) []holdfast.Record {
	return append([]holdfast.Record{rec}, rec.Others...)
}
