package drivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A store is a store as a case uses it. Its methods end the case if the store returns an error, or
// answers otherwise than the case depends on. They must be called on the goroutine of the case,
// except those that return an error. Other goroutines use the embedded store, too.
type store struct {
	driver.Store
	run *caseRun
	log *noticeLog // nil if the store is not a Notifier
}

// request returns an exclusive request of a new owner, which does not wait.
func (s *store) request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: s.run.newOwner(), Holder: "host/1/public", TTL: ttl}
}

// placeRequest returns a request that waits in the queue.
func (s *store) placeRequest(name string, place time.Duration) driver.Request {
	req := s.request(name, long)
	req.Place = place
	return req
}

// limited returns the request with a Limit.
func limited(req driver.Request, limit int) driver.Request {
	req.Limit = limit
	return req
}

// reader, detached, block and withMetadata acquire a name, which must be granted.
func (s *store) reader(name string, ttl time.Duration) *entry {
	return s.grant(limited(s.request(name, ttl), driver.Shared))
}

func (s *store) detached(name string, ttl time.Duration) *entry {
	req := s.request(name, ttl)
	req.Detached = true
	return s.grant(req)
}

func (s *store) block(name string, ttl time.Duration, tokens int) *entry {
	req := s.request(name, ttl)
	req.Tokens = tokens
	return s.grant(req)
}

func (s *store) withMetadata(name string, metadata map[string]string) *entry {
	req := s.request(name, long)
	req.Metadata = metadata
	return s.grant(req)
}

// send sends a request. It is for any goroutine. It returns the entry, nil if there is none, and an
// error if the result is none that a store may have. A vote of several nodes may have no winner:
// after a RetryError that comes soon, it sends the request of a new owner, as package holdfast
// does.
func (s *store) send(req driver.Request) (e *entry, res driver.Result, err error) {
	var again *driver.RetryError
	for range 200 {
		if e, res, err = s.sendOnce(req); s.run.guarantees.Queue || !errors.As(err, &again) || again.After > s.run.medium {
			break
		}
		time.Sleep(again.After)
		req.Owner = s.run.newOwner()
	}
	return e, res, err
}

func (s *store) sendOnce(req driver.Request) (*entry, driver.Result, error) {
	ctx, cancel := s.run.callContext()
	defer cancel()
	e := &entry{store: s, Request: req, sent: time.Now()}
	if s.log != nil {
		e.seen = s.log.count()
	}
	res, err := s.Acquire(ctx, req)
	if err != nil {
		return nil, res, fmt.Errorf("acquire of %q: %w", req.Name, err)
	}
	e.answered, e.token = time.Now(), res.Token
	switch {
	case res.Granted && res.Waiting, res.Waiting && req.Place == 0, !res.Granted && !res.Waiting && res.Token != 0:
		err = fmt.Errorf("acquire with the Place %v: %+v", req.Place, res)
	case res.Granted && s.run.guarantees.Fencing && res.Token == 0:
		err = fmt.Errorf("a grant of %q has no token", req.Name)
	case res.Token < 0 || res.Token > driver.MaxToken:
		err = fmt.Errorf("a grant of %q has the token %d", req.Name, res.Token)
	case res.Token != 0 && !s.run.guarantees.Fencing:
		err = fmt.Errorf("a store without Fencing gives the token %d", res.Token)
	case !res.Granted && !res.Waiting:
		e = nil
	}
	return e, res, err
}

func (s *store) acquire(req driver.Request) driver.Result {
	s.run.Helper()
	_, res, err := s.send(req)
	if err != nil {
		s.run.Fatal(err)
	}
	return res
}

// grant sends a request that must be granted.
func (s *store) grant(req driver.Request) *entry {
	s.run.Helper()
	e, res, err := s.send(req)
	if err != nil || !res.Granted {
		s.run.Fatalf("Acquire of %q: %+v, %v, want it granted", req.Name, res, err)
	}
	return e
}

// hold acquires a name that must be free. In real time a grant may come so late that little of a
// short TTL is left, and a store may then return an error, and leave a hold that ends by itself.
// The name is then acquired again, for another owner.
func (s *store) hold(name string, ttl time.Duration) *entry {
	s.run.Helper()
	for began := time.Now(); ttl < s.run.medium && !s.run.virtual && time.Since(began) < s.run.tolerance(); {
		e, res, err := s.send(s.request(name, ttl))
		if err == nil && res.Granted {
			return e
		}
		if err == nil {
			s.run.Fatalf("Acquire of the free name %q: %+v", name, res)
		}
		s.run.Logf("with a TTL of %v: %v", ttl, err)
		s.run.sleepPast(ttl)
	}
	return s.grant(s.request(name, ttl))
}

// wait sends a request that must make a place.
func (s *store) wait(req driver.Request) *entry {
	s.run.Helper()
	e, res, err := s.send(req)
	if err != nil || !res.Waiting {
		s.run.Fatalf("Acquire of %q with Place: %+v, %v, want it waiting", req.Name, res, err)
	}
	return e
}

// place makes a place that lasts for d, in the queue of a name that is taken.
func (s *store) place(name string, d time.Duration) *entry {
	s.run.Helper()
	return s.wait(s.placeRequest(name, d))
}

// refuse sends a request that must be refused, and returns the record of what is in the way.
func (s *store) refuse(req driver.Request) driver.Record {
	s.run.Helper()
	res := s.acquire(req)
	if res.Granted || res.Waiting {
		s.run.Fatalf("Acquire of %q: %+v, want it refused", req.Name, res)
	}
	return res.Held
}

// expectTaken checks that a new owner is refused the name.
func (s *store) expectTaken(name string) driver.Record {
	s.run.Helper()
	return s.refuse(s.request(name, long))
}

// expectFree checks that a new owner can acquire the name, and releases it.
func (s *store) expectFree(name string) {
	s.run.Helper()
	s.hold(name, long).end()
}

// expectError checks that a request is refused with an error, and has no entry.
func (s *store) expectError(req driver.Request, want ...error) {
	s.run.Helper()
	ctx, cancel := s.run.callContext()
	defer cancel()
	res, err := s.Acquire(ctx, req)
	matches := false
	for _, target := range want {
		matches = matches || errors.Is(err, target)
	}
	if res.Granted || res.Waiting || !matches {
		s.run.Errorf("Acquire with %+v: %+v, %v, want %v", req, res, err, want)
	}
	if s.releaseAs(req.Name, req.Owner, 0) {
		s.run.Errorf("Acquire with %+v: %v, and there is an entry", req, err)
	}
}

// eventually acquires a name that must become free when it is due, or within the tolerance after.
// It makes no attempt before.
func (s *store) eventually(name string, due time.Time) *entry {
	s.run.Helper()
	time.Sleep(time.Until(due))
	return s.pollAcquire(s.request(name, long), due)
}

// takenFor makes attempts until one is granted, and checks that the name was taken for the whole
// duration lasts since began, and not much longer.
func (s *store) takenFor(req driver.Request, began time.Time, lasts time.Duration) *entry {
	s.run.Helper()
	next := s.pollAcquire(req, began.Add(lasts))
	if took := next.answered.Sub(began); took < lasts-precision {
		s.run.Errorf("%q was to be had after %v, want it taken for %v", req.Name, took, lasts)
	}
	return next
}

// pollAcquire sends a request, each time of a new owner, until it is granted, at the latest shortly
// after it is due.
func (s *store) pollAcquire(req driver.Request, due time.Time) (e *entry) {
	s.run.Helper()
	if !s.run.poll(due, func() bool {
		req.Owner = s.run.newOwner()
		var err error
		if e, _, err = s.send(req); err != nil {
			s.run.Fatal(err)
		}
		return e != nil
	}) {
		s.run.Fatalf("%q is not free %v after it was due", req.Name, s.run.tolerance())
	}
	return e
}

// renew sends one batch of renewals, and checks that each has an answer.
func (s *store) renew(reqs ...driver.RenewRequest) []driver.Entry {
	s.run.Helper()
	ctx, cancel := s.run.callContext()
	defer cancel()
	entries, err := s.Renew(ctx, reqs)
	if err != nil || len(entries) != len(reqs) {
		s.run.Fatalf("Renew of %d entries: %d answers, %v", len(reqs), len(entries), err)
	}
	for i, e := range entries {
		if e.State == driver.Unknown {
			s.run.Fatalf("Renew of %q has neither an answer nor an error", reqs[i].Name)
		}
	}
	return entries
}

func (s *store) releaseAs(name, owner string, keep time.Duration) bool {
	s.run.Helper()
	ctx, cancel := s.run.callContext()
	defer cancel()
	ended, err := s.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner, Keep: keep})
	if err != nil {
		s.run.Fatalf("Release of %q: %v", name, err)
	}
	return ended
}

func (s *store) lookup(name string) []driver.Record {
	s.run.Helper()
	ctx, cancel := s.run.callContext()
	defer cancel()
	records, err := s.Lookup(ctx, name)
	if err != nil {
		s.run.Fatalf("Lookup of %q: %v", name, err)
	}
	return records
}

// breakToken breaks the hold with a token, or for 0 all of a name.
func (s *store) breakToken(name string, token int64) []driver.Record {
	s.run.Helper()
	ctx, cancel := s.run.callContext()
	defer cancel()
	records, err := s.Break(ctx, name, token)
	if err != nil {
		s.run.Fatalf("Break of %q: %v", name, err)
	}
	return records
}

// list returns the records of the names with a prefix, by name. It checks that those of one name
// come together.
func (s *store) list(prefix string) map[string][]driver.Record {
	s.run.Helper()
	ctx, cancel := s.run.callContext()
	defer cancel()
	records, last := map[string][]driver.Record{}, ""
	for rec, err := range s.List(ctx, prefix) {
		if err != nil {
			s.run.Fatalf("List of %q: %v", prefix, err)
		}
		if _, again := records[rec.Name]; again && rec.Name != last {
			s.run.Errorf("List of %q yields %q, others, and %q again", prefix, rec.Name, rec.Name)
		}
		records[rec.Name] = append(records[rec.Name], rec)
		last = rec.Name
	}
	return records
}
