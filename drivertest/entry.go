package drivertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An entry is what an owner has, or had: a hold or a place, with what the store has answered.
type entry struct {
	driver.Request
	store *store
	token int64 // 0 if it is not known
	seen  int   // how many notices were examined for it
	kept  bool  // the name is kept after its release

	// The store made the entry at some moment between sent and answered.
	sent     time.Time
	answered time.Time
}

// renewRequest returns a request to renew the entry with a token, or whatever there is for 0.
func (e *entry) renewRequest(token int64, ttl time.Duration) driver.RenewRequest {
	return driver.RenewRequest{Name: e.Name, Owner: e.Owner, Token: token, TTL: ttl}
}

// lastToken returns the last token of the block.
func (e *entry) lastToken() int64 { return e.token + int64(max(e.Tokens, 1)) - 1 }

// expect checks what an answer says of the entry, and takes over a token that was not known.
func (e *entry) expect(got driver.Entry, want driver.State) {
	e.store.run.Helper()
	if err := e.check(got, want); err != nil {
		e.store.run.Error(err)
	}
}

func (e *entry) check(got driver.Entry, want driver.State) error {
	if got.State != want {
		return fmt.Errorf("renew of %q is answered %v, want %v", e.Name, got.State, want)
	}
	if want == driver.Lost {
		return nil
	}
	fencing := e.store.run.guarantees.Fencing
	if got.Token == 0 && (want == driver.Waiting || !fencing) {
		return nil
	}
	if e.token == 0 && fencing {
		e.token = got.Token
	}
	if got.Token != e.token || got.Token <= 0 || got.Token > driver.MaxToken {
		return fmt.Errorf("renew of the entry of %q with token %d is answered token %d", e.Name, e.token, got.Token)
	}
	return nil
}

// expectRenewed prolongs the entry, and checks its state.
func (e *entry) expectRenewed(want driver.State, ttl time.Duration) {
	e.store.run.Helper()
	e.expect(e.store.renew(e.renewRequest(0, ttl))[0], want)
}

// expectState checks the state of the entry, and does not prolong it.
func (e *entry) expectState(want driver.State) {
	e.store.run.Helper()
	e.expectRenewed(want, driver.MinTTL)
}

// expectHeld checks that the owner, and no other owner, has the name, and prolongs the hold.
func (e *entry) expectHeld() {
	e.store.run.Helper()
	e.store.expectTaken(e.Name)
	e.expectRenewed(driver.Held, long)
}

// expectGone checks that the owner has nothing to renew, with or without a token, and nothing to
// release.
func (e *entry) expectGone() {
	e.store.run.Helper()
	for _, token := range []int64{0, e.token} {
		e.expect(e.store.renew(e.renewRequest(token, long))[0], driver.Lost)
	}
	if e.release() {
		e.store.run.Errorf("Release of %q by an owner without an entry reports one", e.Name)
	}
}

func (e *entry) release() bool {
	return e.store.releaseAs(e.Name, e.Owner, 0)
}

// end releases the entry, which must exist.
func (e *entry) end() {
	e.store.run.Helper()
	if !e.release() {
		e.store.run.Fatalf("Release of %q reports no entry, want one", e.Name)
	}
}

// endOrError is end for any goroutine.
func (e *entry) endOrError() error {
	ctx, cancel := e.store.run.callContext()
	defer cancel()
	ended, err := e.store.Release(ctx, driver.ReleaseRequest{Name: e.Name, Owner: e.Owner})
	if err != nil {
		return fmt.Errorf("release of %q: %w", e.Name, err)
	}
	if !ended {
		return fmt.Errorf("release of %q by its owner reports no entry", e.Name)
	}
	return nil
}

// startEnd releases the entry, which must exist, on another goroutine. It returns the channel that
// receives the error.
func (e *entry) startEnd() <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- e.endOrError() }()
	return ended
}

// keep releases the hold, which must exist, and keeps the name. It returns when the keep began at
// the earliest.
func (e *entry) keep(d time.Duration) time.Time {
	e.store.run.Helper()
	sent := time.Now()
	if !e.store.releaseAs(e.Name, e.Owner, d) {
		e.store.run.Fatalf("Release of %q with Keep reports no hold, want one", e.Name)
	}
	e.kept = true
	return sent
}

// sleepPast waits until the store's clock has passed the first end of the entry.
func (e *entry) sleepPast() {
	lasts := e.TTL
	if e.Place > 0 {
		lasts = e.Place
	}
	e.store.run.sleepPast(time.Until(e.answered.Add(lasts)))
}

// expired acquires the name, lets the hold expire, and returns it.
func (s *store) expired(name string) *entry {
	s.run.Helper()
	e := s.hold(name, short)
	e.sleepPast()
	return e
}

// look returns the state of the entry, and does not prolong it. It is for any goroutine. A store
// that has no answer is asked again.
func (e *entry) look() (driver.Entry, error) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		ctx, cancel := e.store.run.callContext()
		got, err := e.store.Renew(ctx, []driver.RenewRequest{e.renewRequest(0, driver.MinTTL)})
		cancel()
		if len(got) == 1 && got[0].State != driver.Unknown {
			return got[0], nil
		}
		if err == nil {
			return driver.Entry{}, errors.New("renew has neither an answer nor an error")
		}
		if time.Since(began) > e.store.run.tolerance() {
			return driver.Entry{}, err
		}
	}
}

// waitHeld waits until the place becomes a hold, by notices alone if the store is a Notifier. It
// does not prolong the entry. It is for any goroutine.
func (e *entry) waitHeld() error {
	timeout := time.After(e.store.run.turnTimeout())
	for {
		told := int64(0)
		if e.store.log == nil {
			select {
			case <-time.After(time.Millisecond):
			case <-timeout:
				return fmt.Errorf("a place in the queue of %q does not become a hold", e.Name)
			}
		} else if n, ok := e.nextNotice(timeout); !ok {
			return fmt.Errorf("no notice came for a place in the queue of %q", e.Name)
		} else {
			told = n.token
		}
		got, err := e.look()
		if err != nil {
			return err
		}
		if told == 0 && got.State == driver.Waiting {
			continue
		}
		if err := e.check(got, driver.Held); err != nil {
			return err
		}
		if told != 0 && told != e.token {
			return fmt.Errorf("a notice for the hold of %q with token %d has the token %d", e.Name, e.token, told)
		}
		return nil
	}
}

// expectTurn is waitHeld for the goroutine of the case.
func (e *entry) expectTurn() {
	e.store.run.Helper()
	if err := e.waitHeld(); err != nil {
		e.store.run.Fatal(err)
	}
}

// pollHeld looks until the place has become a hold, which is due.
func (e *entry) pollHeld(due time.Time) {
	e.store.run.Helper()
	if !e.store.run.poll(due, func() bool {
		return e.store.renew(e.renewRequest(0, driver.MinTTL))[0].State == driver.Held
	}) {
		e.store.run.Fatalf("a place in the queue of %q is no hold %v after its turn", e.Name, e.store.run.tolerance())
	}
	e.expectState(driver.Held)
}

// expectTurns ends the hold, and checks that the places become holds in this order, each by the end
// of the hold before it, and that the name is free after them.
func (e *entry) expectTurns(places ...*entry) {
	e.store.run.Helper()
	last := e
	for _, next := range places {
		last.end()
		next.expectTurn()
		next.expectAbove(last)
		last = next
	}
	last.end()
	e.store.expectFree(e.Name)
}

// expectAbove checks that the token of a later entry is above those of an earlier one.
func (e *entry) expectAbove(earlier *entry) {
	e.store.run.Helper()
	if e.store.run.guarantees.Fencing && e.token <= earlier.lastToken() {
		e.store.run.Errorf("a later entry of %q has the token %d, not above %d", e.Name, e.token, earlier.lastToken())
	}
}

// strangers returns owners that a store must distinguish from owner.
func strangers(owner string) map[string]string {
	return map[string]string{
		"another owner":                 "x" + owner[1:],
		"a beginning of the owner":      owner[:len(owner)-1],
		"an end of the owner":           owner[1:],
		"the owner and a letter more":   owner + "x",
		"the owner and a space more":    owner + " ",
		"the owner in another case":     strings.ToUpper(owner),
		"a pattern that fits the owner": owner[:1] + "*",
		"a pattern of any character":    "%",
	}
}
