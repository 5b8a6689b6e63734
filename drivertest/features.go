package drivertest

import (
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// features is a set of what a store claims or does, and of the functions of its harness.
type features uint32

const (
	// What the Guarantees claim.
	fencing features = 1 << iota
	queue
	limits
	keep
	blocks
	processes

	// What the harness does.
	restart
	crash
	fault
	sever
	silence
	skew
	occupy
	busy

	// What a store does or refuses with ErrUnsupported.
	notifier
	floors
	shared
	waits
	detached
	metadata
	lookup
	records
	list
	breaking
)

// missing has, in the order of the bits, the reason why a feature is missing.
var missing = strings.Split(`Guarantees.Fencing is false
Guarantees.Queue is false
Guarantees.Limits is false
Guarantees.Keep is false
Guarantees.Tokens is at most 1
Guarantees.InProcess is true
Backing.Restart is nil
Backing.Crash is nil
Backing.Fault is nil
Backing.Sever is nil
Backing.Silence is nil
Backing.OpenSkewed is nil
Backing.Occupy is nil
Backing.Busy is nil
the store is not a Notifier
the store does not support a Floor
the store does not support Shared
the store does not answer Waiting
the store does not support Detached
the store does not support Metadata
the store does not support Lookup
the records of Lookup have no Remaining
the store does not support List
the store does not support Break`, "\n")

func (f features) has(other features) bool { return f&other == other }

// String returns the reasons why these features are missing.
func (f features) String() string {
	var reasons []string
	for i, reason := range missing {
		if f&(1<<i) != 0 {
			reasons = append(reasons, reason)
		}
	}
	return strings.Join(reasons, "; ")
}

// available returns the features that a store and its harness have.
func available(r *caseRun) (have features) {
	g, b := r.guarantees, r.backing
	_, notifies := r.first.Store.(driver.Notifier)
	for i, present := range []bool{
		g.Fencing, g.Queue, g.Limits, g.Keep, g.Tokens > 1, !g.InProcess,
		b.Restart != nil, b.Crash != nil, b.Fault != nil, b.Sever != nil,
		b.Silence != nil, b.OpenSkewed != nil, b.Occupy != nil, b.Busy != nil, notifies,
	} {
		if present {
			have |= 1 << i
		}
	}
	r.features = have
	return have | r.supported()
}

// supported sends requests to find what the store supports of what no field of its Guarantees
// claims.
func (r *caseRun) supported() (have features) {
	ctx, cancel := r.callContext()
	defer cancel()
	add := func(feature features, err error) {
		if err == nil {
			have |= feature
		} else if !errors.Is(err, driver.ErrUnsupported) {
			r.Fatalf("a request to an empty store: %v", err)
		}
	}
	for name, request := range map[features]driver.Request{
		floors:   {Floor: 1},
		shared:   {Limit: driver.Shared},
		detached: {Detached: true},
		metadata: {Metadata: map[string]string{"key": "value"}},
	} {
		request.Name, request.Owner, request.Holder, request.TTL = "probe", r.newOwner(), "probe", long
		_, err := r.first.Acquire(ctx, request)
		add(name, err)
		if err == nil {
			r.first.releaseAs("probe", request.Owner, 0)
		}
	}
	other := r.other()
	h := r.first.hold("probe", long)
	res := other.acquire(other.placeRequest("probe", short))
	found, lookupErr := other.Lookup(ctx, "probe")
	_, breakErr := other.Break(ctx, "nothing", 0)
	var listErr error
	for _, listErr = range other.List(ctx, "nothing") {
	}
	add(lookup, lookupErr)
	add(list, listErr)
	add(breaking, breakErr)
	if res.Waiting {
		have |= waits
	}
	if len(found) > 0 && found[0].Remaining > 0 {
		have |= records
	}
	h.end()
	return have
}
