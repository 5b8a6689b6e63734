package holdfast

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// checkRequired returns an error that lists what the store lacks of the required guarantees.
func checkRequired(guarantees, required driver.Guarantees) error {
	var missing []string
	missingIf := func(lacks bool, format string, args ...any) {
		if lacks {
			missing = append(missing, fmt.Sprintf(format, args...))
		}
	}
	missingIf(required.Store != "" && guarantees.Store != required.Store, "Store %s, not %s", required.Store, guarantees.Store)
	missingIf(guarantees.Scope < required.Scope, "Scope %v, not %v", required.Scope, guarantees.Scope)
	missingIf(guarantees.HolderCrash < required.HolderCrash, "HolderCrash %v, not %v", required.HolderCrash, guarantees.HolderCrash)
	missingIf(isWorse(guarantees.Restart, required.Restart), "Restart %v, not %v", required.Restart, guarantees.Restart)
	missingIf(isWorse(guarantees.Failover, required.Failover), "Failover %v, not %v", required.Failover, guarantees.Failover)
	for _, f := range []struct {
		name               string
		provided, required bool
	}{
		{"Fencing", guarantees.Fencing, required.Fencing},
		{"Fair", guarantees.Fair, required.Fair},
		{"Push", guarantees.Push, required.Push},
		{"Supervised", guarantees.Supervised, required.Supervised},
		{"Detached", guarantees.Detached, required.Detached},
		{"Lookup", guarantees.Lookup, required.Lookup},
		{"List", guarantees.List, required.List},
		{"Break", guarantees.Break, required.Break},
		{"Metadata", guarantees.Metadata, required.Metadata},
		{"Keep", guarantees.Keep, required.Keep},
	} {
		missingIf(f.required && !f.provided, "%s", f.name)
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%w: the %s store lacks what Config.Require asks for: %s",
		ErrUnsupported, guarantees.Store, strings.Join(missing, "; "))
}

// isWorse reports whether a fate is worse than the worst that is acceptable, if one is given. A
// fate that the store leaves open is the worst.
func isWorse(fate, acceptable driver.Fate) bool {
	return acceptable != 0 && (fate == 0 || fate > acceptable)
}
