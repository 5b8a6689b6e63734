package drivertest

// detachedCases are about entries that outlive the process that made them.
var detachedCases = []testCase{
	{"handed-over", detached, "Any process that knows the owner of a detached hold may renew and release it.", func(r *caseRun) {
		h := r.first.detached("name", r.medium)
		h.store = r.other()
		h.expectHeld()
		h.sleepPast()
		h.expectHeld()
		h.end()
		r.first.expectFree("name")
	}},
	{"outlives-store", detached | processes, "A detached hold lasts on after the store that made it is closed.", func(r *caseRun) {
		h := r.first.detached("name", long)
		if err := r.first.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
		h.store = r.open()
		h.expectHeld()
		h.end()
		h.store.expectFree("name")
	}},
	{"outlives-process", detached | processes | crash, "A detached hold lasts on after the process that made it has died, and after one that renewed it.", func(r *caseRun) {
		maker, renewer := r.open(), r.open()
		h := maker.detached("name", long)
		r.backing.Crash(r, maker.Store)
		h.store = renewer
		renewer.hold("other name", long) // so that the store has what ends with a process
		h.expectHeld()
		r.backing.Crash(r, renewer.Store)
		h.store = r.first
		h.expectHeld()
		h.end()
		r.first.expectFree("name")
	}},
}
