package drivertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// bugs has a broken store for every case, and for each guarantee.
var bugs = []*bug{
	// What a store claims and refuses.
	{name: "guarantees change", fails: "guarantees/complete", guarantees: func(p *process) driver.Guarantees {
		g := p.claims
		g.Keep = p.once("asked")
		return g
	}},
	{name: "guarantees vague", fails: "guarantees/complete", guarantees: func(p *process) driver.Guarantees {
		g := p.claims
		g.Restart = 0
		return g
	}},
	{name: "limit one is shared", fails: "guarantees/limit-one limits/prefix", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Limit == 1 {
			req.Limit = driver.Shared
		}
	})},
	{name: "tokens unclaimed", claims: noFencing, fails: "guarantees/refusals exclusion/held-name", acquire: answering(
		func(_ *process, _ driver.Request, res *driver.Result, _ *error) { res.Token = 7 })},
	{name: "tokens shown unclaimed", claims: noFencing, fails: "guarantees/refusals", lookup: showing(func(*driver.Record) {})},
	{name: "limits unclaimed", claims: noLimits, fails: "guarantees/refusals", acquire: func(p *process) acquireFunc { return p.Notifier.Acquire }},
	{name: "refused request makes an entry", claims: noLimits, fails: "guarantees/refusals",
		acquire: answering(func(p *process, req driver.Request, _ *driver.Result, err *error) {
			if errors.Is(*err, driver.ErrUnsupported) {
				_, _ = p.Notifier.Acquire(background, req)
			}
		})},
	{name: "refused keep releases", claims: noKeep, fails: "guarantees/refusals", keepUnclaimed: func(p *process) releaseFunc {
		return func(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
			p.end(req.Name, req.Owner, 0)
			return false, driver.ErrUnsupported
		}
	}},
	{name: "keep unclaimed", claims: noKeep, fails: "guarantees/refusals", keepUnclaimed: func(p *process) releaseFunc { return p.Notifier.Release }},
	{name: "refused break breaks", bare: true, fails: "guarantees/refusals", breaks: func(p *process) breakFunc {
		return func(_ context.Context, name string, token int64) ([]driver.Record, error) {
			p.broken(name, token)
			return nil, driver.ErrUnsupported
		}
	}},

	// Exclusion and identity.
	{name: "separate worlds", fails: "exclusion/held-name concurrency/one-winner faults/acquire-reply-lost",
		acquire: asking(func(p *process, req *driver.Request) { req.Name = fmt.Sprintf("%p", p) + req.Name })},
	{name: "names by first letter", fails: "exclusion/names-apart", text: func(name string) string { return name[:1] }},
	{name: "names folded", fails: "names/odd list/held-names", text: strings.ToLower},
	{name: "names trimmed", fails: "names/odd", text: strings.TrimSpace},
	{name: "names cut", fails: "names/odd", text: func(name string) string { return name[:min(len(name), 100)] }},
	{name: "owners folded", fails: "exclusion/owner-compared-whole release/place names/owners", secret: func(owner string) string {
		return strings.ToUpper(strings.Trim(owner, " 'x"))
	}},
	{name: "owners refused", fails: "names/owners", acquire: answering(func(_ *process, req driver.Request, _ *driver.Result, err *error) {
		if strings.Contains(req.Owner, "'") {
			*err = errors.New("syntax error")
		}
	})},
	{name: "second Acquire granted", fails: "exclusion/second-acquire concurrency/one-owner",
		acquire: answering(func(_ *process, _ driver.Request, res *driver.Result, err *error) {
			if *err != nil {
				*res, *err = driver.Result{Granted: true, Token: 1}, nil
			}
		})},
	{name: "second Acquire refused", fails: "exclusion/second-acquire concurrency/one-owner",
		acquire: answering(func(_ *process, _ driver.Request, _ *driver.Result, err *error) { *err = nil })},
	{name: "second Acquire prolongs", fails: "exclusion/second-acquire",
		acquire: answering(func(p *process, req driver.Request, _ *driver.Result, err *error) {
			if *err != nil {
				_, _ = p.Notifier.Renew(background, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: long}})
			}
		})},
	{name: "renew forgets owner", fails: "exclusion/late-requests exclusion/owner-compared-whole release/frees renew/batch",
		acquire: answering(remembers),
		renew: renewing(func(p *process, req *driver.RenewRequest) {
			req.Owner, req.Token = p.lastOwner(req.Name, req.Owner), 0
		})},
	{name: "release forgets owner", fails: "exclusion/late-requests exclusion/owner-compared-whole release/frees faults/release-reply-lost",
		acquire: answering(remembers),
		release: released(func(p *process, req driver.ReleaseRequest) bool {
			return p.end(req.Name, p.lastOwner(req.Name, req.Owner), req.Keep)
		})},
	{name: "refusal prolongs", fails: "exclusion/refusal-harmless exclusion/owner-compared-whole",
		acquire: answering(func(p *process, req driver.Request, res *driver.Result, err *error) {
			if *err == nil && !res.Granted {
				_, _ = p.Notifier.Renew(background, []driver.RenewRequest{{Name: req.Name, Owner: p.lastOwner(req.Name, ""), TTL: long}})
			}
		})},
	{name: "refusal waits", fails: "exclusion/refusal-harmless limits/prefix", acquire: func(p *process) acquireFunc {
		return func(ctx context.Context, req driver.Request) (driver.Result, error) {
			place := req.Place
			if req.Floor == 0 {
				req.Place = long
			}
			res, err := p.acquire(ctx, req)
			if place == 0 && res.Waiting {
				res = driver.Result{}
			}
			return res, err
		}
	}},
	{name: "refusal names another", fails: "exclusion/refusal-record keep/records", acquire: answering(
		func(_ *process, _ driver.Request, res *driver.Result, _ *error) { res.Held.Holder = "another" })},
	{name: "refusal leaks owner", fails: "exclusion/secret", acquire: answering(
		func(_ *process, req driver.Request, res *driver.Result, _ *error) { res.Held.Holder = req.Owner })},
	{name: "lookup leaks owner", fails: "exclusion/secret", lookup: showing(func(rec *driver.Record) { rec.Holder = "SecretOfOwner" })},
	{name: "list leaks owner", fails: "exclusion/secret list/held-names", list: listing(same, func(_ string, all []driver.Record) []driver.Record {
		for i := range all {
			all[i].Holder = "SecretOfOwner"
		}
		return all
	})},
	{name: "break leaks owner", fails: "exclusion/secret break/all", breaks: breaks(func(p *process, name string, token int64) []driver.Record {
		records := p.broken(name, token)
		for i := range records {
			records[i].Holder = "SecretOfOwner"
		}
		return records
	})},
	{name: "checks then sets", fails: "concurrency/exclusion concurrency/one-winner limits/sum", acquire: func(p *process) acquireFunc {
		return func(ctx context.Context, req driver.Request) (driver.Result, error) {
			found, _ := p.Notifier.Lookup(ctx, req.Name)
			time.Sleep(time.Millisecond)
			if len(found) == 0 {
				p.broken(req.Name, 0)
			}
			return p.acquire(ctx, req)
		}
	}},

	// Time.
	{name: "expires early", fails: "time/ttl exclusion/names-apart", acquire: asking(func(_ *process, req *driver.Request) { req.TTL -= 5 * time.Millisecond })},
	{name: "expires late", fails: "time/ttl time/never-revived lookup/free-name break/all limits/own-lease",
		acquire: asking(func(_ *process, req *driver.Request) { req.TTL += time.Second })},
	{name: "coarse ends early", claims: coarse, fails: "time/ttl", acquire: asking(func(p *process, req *driver.Request) { req.TTL -= p.claims.Grain + 5*time.Millisecond })},
	{name: "long TTL overflows", fails: "time/longest", renew: renewing(func(_ *process, req *driver.RenewRequest) { req.TTL %= 300 * 24 * time.Hour }),
		acquire: asking(func(_ *process, req *driver.Request) { req.TTL %= 300 * 24 * time.Hour })},
	{name: "renew shortens", fails: "time/prolonged", renew: renewed(func(p *process, req driver.RenewRequest, e *driver.Entry) {
		if e.State != driver.Lost {
			time.AfterFunc(req.TTL, func() { p.end(req.Name, req.Owner, 0) })
		}
	})},
	{name: "renew does nothing", fails: "renew/hold renew/place renew/place-that-holds faults/renew-reply-lost lookup/held-name detached/handed-over",
		renew: renewing(func(_ *process, req *driver.RenewRequest) { req.TTL = driver.MinTTL })},
	{name: "renew lasts longer", fails: "time/prolonged", renew: renewing(func(_ *process, req *driver.RenewRequest) { req.TTL += time.Second })},
	{name: "renew revives", fails: "time/never-revived renew/nothing concurrency/renew-and-release keep/repeated-too-late",
		renew: renewed(func(p *process, req driver.RenewRequest, e *driver.Entry) {
			if e.State == driver.Lost {
				res, _ := p.Notifier.Acquire(background, driver.Request{Name: req.Name, Owner: req.Owner, TTL: req.TTL})
				if res.Granted {
					*e = driver.Entry{State: driver.Held, Token: res.Token}
				}
			}
		}),
		release: released(func(p *process, req driver.ReleaseRequest) bool {
			return p.end(req.Name, req.Owner, req.Keep) || !p.once("ended"+req.Owner)
		})},
	{name: "client clock", fails: "time/store-clock", acquire: asking(func(p *process, req *driver.Request) { req.TTL = max(req.TTL+p.skew, 1) })},

	// Tokens.
	{name: "tokens repeat", fails: "tokens/rise closing/twice", acquire: answering(
		func(_ *process, _ driver.Request, res *driver.Result, _ *error) { res.Token = min(res.Token, 7) })},
	{name: "tokens too large", fails: "exclusion/held-name", acquire: answering(
		func(_ *process, _ driver.Request, res *driver.Result, _ *error) { res.Token *= 10 })},
	{name: "tokens fall at break", fails: "tokens/rise",
		acquire: answering(func(p *process, _ driver.Request, res *driver.Result, _ *error) {
			if p.isSet() {
				res.Token = min(res.Token, 7)
			}
		}),
		breaks: breaks(func(p *process, name string, token int64) []driver.Record { p.set(true); return p.broken(name, token) })},
	{name: "tokens fall at restart", fails: "faults/restart",
		acquire: answering(func(p *process, _ driver.Request, res *driver.Result, _ *error) {
			if p.isSet() {
				res.Token = min(res.Token, 7)
			}
		}),
		backing: func(w *world, b *Backing) { b.Restart = func(testing.TB) { w.set(true) } }},
	{name: "token at the grant", fails: "tokens/queue queue/in-order notices/true", renew: renewed(func(_ *process, _ driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Held {
			e.Token += 1000
		}
	})},
	{name: "ignores floor", fails: "tokens/floor", acquire: asking(func(_ *process, req *driver.Request) { req.Floor = 0 })},
	{name: "takes any floor", fails: "tokens/floor-invalid", acquire: asking(func(_ *process, req *driver.Request) {
		req.Floor = min(req.Floor, time.Now().Add(driver.MaxLead).UnixMicro())
	})},
	{name: "floor waits", fails: "tokens/floor-invalid", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Place > 0 {
			req.Floor = 0
		}
	})},
	{name: "refusal raises token", fails: "tokens/floor-of-a-refusal", acquire: answering(func(p *process, req driver.Request, res *driver.Result, _ *error) {
		if req.Floor > 0 && !res.Granted {
			p.set(true)
		}
		if res.Granted && p.isSet() {
			res.Token += driver.MaxLead.Microseconds()
		}
	})},
	{name: "block not reserved", fails: "tokens/block break/block", acquire: asking(func(_ *process, req *driver.Request) { req.Tokens = 0 })},
	{name: "block with a limit", fails: "tokens/block-invalid", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Limit > 1 {
			req.Tokens = 1
		}
	})},
	{name: "block too large", fails: "tokens/block-invalid", acquire: asking(func(_ *process, req *driver.Request) { req.Tokens = min(req.Tokens, driver.MaxTokens) })},

	// Renew.
	{name: "renew ignores token", fails: "renew/hold-other-token renew/place", renew: renewing(func(_ *process, req *driver.RenewRequest) { req.Token = 0 })},
	{name: "renew of another token prolongs", fails: "renew/hold-other-token renew/place", renew: renewed(func(p *process, req driver.RenewRequest, _ *driver.Entry) {
		req.Token = 0
		_, _ = p.Notifier.Renew(background, []driver.RenewRequest{req})
	})},
	{name: "renew takes any token of the block", fails: "renew/hold-other-token", renew: renewed(func(p *process, req driver.RenewRequest, e *driver.Entry) {
		got, _ := p.Notifier.Renew(background, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: 1}})
		if e.State == driver.Lost && req.Token > got[0].Token && req.Token < got[0].Token+driver.MaxTokens {
			*e = got[0]
		}
	})},
	{name: "token means holds", fails: "renew/place", renew: renewed(func(_ *process, req driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Waiting && req.Token != 0 {
			*e = driver.Entry{State: driver.Lost}
		}
	})},
	{name: "renew forgets places", fails: "renew/place queue/in-order faults/acquire-reply-lost waiting/given-up", renew: renewed(func(_ *process, _ driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Waiting {
			*e = driver.Entry{State: driver.Lost}
		}
	})},
	{name: "place stays a place", fails: "renew/place-that-holds waiting/turns queue/expired-hold", renew: renewed(func(p *process, req driver.RenewRequest, e *driver.Entry) {
		if asked, _ := p.request(req.Owner); e.State == driver.Held && asked.Place > 0 {
			e.State = driver.Waiting
		}
	})},
	{name: "batch uses first TTL", fails: "renew/batch", renew: func(p *process) renewFunc {
		return func(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
			for i := range reqs {
				reqs[i].TTL = reqs[0].TTL
			}
			return p.Notifier.Renew(ctx, reqs)
		}
	}},
	{name: "batch out of order", fails: "renew/batch renew/place", renew: func(p *process) renewFunc {
		return func(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
			entries, err := p.Notifier.Renew(ctx, reqs)
			slices.Reverse(entries)
			return entries, err
		}
	}},
	{name: "batch is cut", fails: "renew/batch-large", renew: renewed(func(p *process, _ driver.RenewRequest, e *driver.Entry) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.count++; p.count > 250 {
			*e = driver.Entry{}
		}
	})},
	{name: "renew through own process only", fails: "detached/handed-over detached/outlives-process faults/restart",
		renew: renewed(func(p *process, req driver.RenewRequest, e *driver.Entry) {
			if _, own := p.request(req.Owner); !own {
				*e = driver.Entry{State: driver.Lost}
			}
		})},

	// Release and keep.
	{name: "release always true", fails: "release/frees exclusion/late-requests", release: released(func(p *process, req driver.ReleaseRequest) bool {
		p.end(req.Name, req.Owner, req.Keep)
		return true
	})},
	{name: "release does nothing", fails: "release/frees contexts/cancel-storm", release: released(func(*process, driver.ReleaseRequest) bool { return true })},
	{name: "releases late", fails: "release/frees contexts/cancel-storm waiting/given-up", release: released(func(p *process, req driver.ReleaseRequest) bool {
		time.AfterFunc(50*time.Microsecond, func() { p.end(req.Name, req.Owner, req.Keep) })
		return p.state(req.Name, req.Owner) != driver.Lost
	})},
	{name: "release forgets places", fails: "release/place waiting/given-up notices/every-end", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return p.state(req.Name, req.Owner) != driver.Waiting && p.end(req.Name, req.Owner, req.Keep)
	})},
	{name: "place keeps", fails: "release/place", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return p.end(req.Name, req.Owner, req.Keep) || p.state(req.Name, req.Owner) == driver.Lost && req.Keep > 0 && p.once(req.Owner)
	})},
	{name: "keep forgets places", fails: "release/place", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return (req.Keep == 0 || p.state(req.Name, req.Owner) != driver.Waiting) && p.end(req.Name, req.Owner, req.Keep)
	})},
	{name: "ignores keep", fails: "keep/taken keep/time keep/repeated break/keep queue/keep", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return p.end(req.Name, req.Owner, 0)
	})},
	{name: "keep can be renewed", fails: "keep/taken", release: released(func(p *process, req driver.ReleaseRequest) bool {
		p.set(p.isSet() || req.Keep > 0)
		return p.end(req.Name, req.Owner, req.Keep)
	}), renew: renewed(func(p *process, _ driver.RenewRequest, e *driver.Entry) {
		if p.isSet() {
			*e = driver.Entry{State: driver.Held, Token: e.Token}
		}
	})},
	{name: "keep lasts longer", fails: "keep/time keep/taken limits/prefix", release: released(func(p *process, req driver.ReleaseRequest) bool {
		if req.Keep > 0 {
			req.Keep += long
		}
		return p.end(req.Name, req.Owner, req.Keep)
	})},
	{name: "keep only shortens", fails: "keep/time", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return p.end(req.Name, req.Owner, min(req.Keep, 2*time.Second))
	})},
	{name: "keep ends early", fails: "queue/keep keep/time", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return p.end(req.Name, req.Owner, req.Keep*9/10)
	})},
	{name: "keep not repeatable", fails: "keep/repeated faults/release-reply-lost", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return (req.Keep == 0 || p.once(req.Owner)) && p.end(req.Name, req.Owner, req.Keep)
	})},
	{name: "repetition keeps not anew", fails: "keep/repeated", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return req.Keep > 0 && !p.once(req.Owner) || p.end(req.Name, req.Owner, req.Keep)
	})},
	{name: "late keep takes", fails: "keep/repeated-too-late", release: released(func(p *process, req driver.ReleaseRequest) bool {
		if req.Keep > 0 && p.state(req.Name, req.Owner) == driver.Lost {
			_, _ = p.Notifier.Acquire(background, driver.Request{Name: req.Name, Owner: req.Owner, TTL: req.Keep})
		}
		return p.end(req.Name, req.Owner, req.Keep)
	})},
	{name: "keep names holder", fails: "keep/records", lookup: showing(func(rec *driver.Record) {
		if rec.Kept {
			rec.Holder = "holder"
		}
	})},
	{name: "keep is not marked", fails: "keep/records", lookup: showing(func(rec *driver.Record) { rec.Kept = false })},
	{name: "keep frees its share", fails: "limits/prefix", release: released(func(p *process, req driver.ReleaseRequest) bool {
		if asked, _ := p.request(req.Owner); asked.Limit > 1 {
			req.Keep = 0
		}
		return p.end(req.Name, req.Owner, req.Keep)
	})},

	// The queue and limits.
	{name: "later places first", fails: "queue/in-order queue/expired-places tokens/queue renew/place faults/severed",
		acquire: answering(func(p *process, req driver.Request, res *driver.Result, _ *error) {
			if !res.Waiting {
				return
			}
			p.mu.Lock()
			before, waits := p.owner["waiting"]
			p.owner["waiting"] = req.Owner
			p.mu.Unlock()
			if waits && p.state(req.Name, before) == driver.Waiting {
				p.end(req.Name, before, 0)
				_, _ = p.Notifier.Acquire(background, driver.Request{Name: req.Name, Owner: before, TTL: long, Place: long})
			}
		})},
	{name: "overtaken at last", fails: "queue/no-overtaking", acquire: answering(func(p *process, req driver.Request, res *driver.Result, _ *error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.count++; p.count > 15 && !res.Waiting {
			*res = driver.Result{Granted: true, Token: time.Now().UnixMicro()}
		}
	})},
	{name: "grant lasts for the place", fails: "queue/granted-at-once", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Place > 0 {
			req.TTL = req.Place
		}
	})},
	{name: "promotion prolongs", fails: "queue/end-of-a-place queue/expired-hold", notice: func(p *process, name, owner string, token *int64) bool {
		_, _ = p.Notifier.Renew(background, []driver.RenewRequest{{Name: name, Owner: owner, TTL: long}})
		return true
	}},
	{name: "promotion shortens", fails: "queue/end-of-a-place", notice: func(p *process, name, owner string, token *int64) bool {
		req, _ := p.request(owner)
		time.AfterFunc(req.TTL, func() { p.end(name, owner, 0) })
		return true
	}},
	{name: "places never end", fails: "queue/expired-places queue/expired-hold queue/crash limits/writer-waits",
		acquire: asking(func(_ *process, req *driver.Request) {
			if req.Place > 0 {
				req.Place = long
			}
		})},
	{name: "admission is a step", fails: "queue/expired-hold",
		renew: renewed(func(p *process, req driver.RenewRequest, e *driver.Entry) {
			asked, _ := p.request(req.Owner)
			if e.State == driver.Held && asked.Place > 0 && p.once(req.Owner) {
				e.State = driver.Waiting
			}
		})},
	{name: "place forgets request", fails: "queue/request", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Place > 0 {
			req.Holder = "somebody"
		}
	})},
	{name: "count has the hold", fails: "queue/count", lookup: showing(func(rec *driver.Record) { rec.Waiting++ })},
	{name: "crashed places stay", fails: "queue/crash", backing: func(w *world, b *Backing) {
		b.Crash = func(_ testing.TB, s driver.Store) {
			p := processOf(s)
			for owner, req := range p.owners {
				_, _ = p.Notifier.Renew(background, []driver.RenewRequest{{Name: req.Name, Owner: owner, TTL: long}})
			}
		}
	}},
	{name: "readers are writers", fails: "limits/readers limits/own-lease lookup/several break/one-of-several",
		acquire: asking(func(_ *process, req *driver.Request) { req.Limit = 0 })},
	{name: "writers are readers", fails: "limits/readers limits/sum exclusion/held-name", acquire: asking(func(_ *process, req *driver.Request) { req.Limit = driver.Shared })},
	{name: "one lease for all", fails: "limits/own-lease", renew: renewed(func(p *process, req driver.RenewRequest, _ *driver.Entry) {
		for _, q := range p.listening() {
			for owner := range q.snapshot() {
				_, _ = p.Notifier.Renew(background, []driver.RenewRequest{{Name: req.Name, Owner: owner, TTL: req.TTL}})
			}
		}
	})},
	{name: "readers overtake", fails: "limits/writer-waits limits/prefix", acquire: answering(func(p *process, req driver.Request, res *driver.Result, _ *error) {
		found, _ := p.Notifier.Lookup(background, req.Name)
		if !res.Granted && req.Limit == driver.Shared && len(found) > 0 && found[0].Limit == driver.Shared {
			*res = driver.Result{Granted: true, Token: time.Now().UnixMicro()}
		}
	})},
	{name: "limit of the newest only", fails: "limits/prefix", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Limit == 2 {
			req.Limit = 3
		}
	})},
	{name: "limit is one too many", fails: "limits/sum", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Limit > 1 && req.Limit < driver.Shared {
			req.Limit++
		}
	})},

	// Break.
	{name: "break does nothing", fails: "break/all break/keep break/token break/one-of-several", breaks: breaks(func(*process, string, int64) []driver.Record { return nil })},
	{name: "break always reports", fails: "break/all", breaks: breaks(func(p *process, name string, token int64) []driver.Record {
		return append(p.broken(name, token), driver.Record{Name: name})
	})},
	{name: "break ignores token", fails: "break/token break/places-stay break/one-of-several", breaks: breaks(func(p *process, name string, _ int64) []driver.Record {
		return p.broken(name, 0)
	})},
	{name: "break by first token", fails: "break/block", breaks: breaks(func(p *process, name string, token int64) []driver.Record {
		found, _ := p.Notifier.Lookup(background, name)
		if token != 0 && !slices.ContainsFunc(found, func(rec driver.Record) bool { return rec.Token == token }) {
			return nil
		}
		return p.broken(name, token)
	})},
	{name: "break spares keeps", fails: "break/keep", breaks: breaks(func(p *process, name string, token int64) []driver.Record {
		if found, _ := p.Notifier.Lookup(background, name); len(found) > 0 && found[0].Kept {
			return nil
		}
		return p.broken(name, token)
	})},
	{name: "break ends places", fails: "break/places-stay notices/every-end", breaks: breaks(func(p *process, name string, token int64) []driver.Record {
		for _, q := range p.listening() {
			for owner := range q.snapshot() {
				if p.state(name, owner) == driver.Waiting {
					p.end(name, owner, 0)
				}
			}
		}
		return p.broken(name, token)
	})},
	{name: "break is silent", fails: "break/told", notice: func(_ *process, _, _ string, token *int64) bool { return *token != 0 }},

	// Records.
	{name: "lookup shows the free", fails: "lookup/free-name", lookup: looking(func(records []driver.Record) []driver.Record {
		if len(records) == 0 {
			return []driver.Record{{Name: "name"}}
		}
		return records
	})},
	{name: "lookup knows no token", fails: "lookup/held-name", lookup: showing(func(rec *driver.Record) { rec.Token = 0 })},
	{name: "lookup newest first", fails: "lookup/several", lookup: looking(func(records []driver.Record) []driver.Record {
		slices.Reverse(records)
		return records
	})},
	{name: "lookup drops metadata", fails: "names/metadata names/metadata-of-this-hold lookup/several", lookup: showing(func(rec *driver.Record) { rec.Metadata = nil })},
	{name: "metadata is inherited", fails: "names/metadata-of-this-hold", acquire: asking(func(p *process, req *driver.Request) {
		for _, asked := range p.snapshot() {
			if req.Metadata == nil {
				req.Metadata = asked.Metadata
			}
		}
	})},
	{name: "list ignores prefix", fails: "list/held-names list/literal-prefix", list: listing(none, func(_ string, all []driver.Record) []driver.Record { return all })},
	{name: "list takes patterns", fails: "list/literal-prefix", list: listing(none, func(prefix string, all []driver.Record) []driver.Record {
		return slices.DeleteFunc(all, func(rec driver.Record) bool {
			matched, _ := path.Match(prefix+"*", rec.Name)
			return !matched
		})
	})},
	{name: "list is cut", fails: "list/many", list: listing(same, func(_ string, all []driver.Record) []driver.Record { return all[:min(len(all), 256)] })},
	{name: "list mixes names", fails: "list/many lookup/several", list: listing(same, func(_ string, all []driver.Record) []driver.Record { return append(all, all...) })},
	{name: "list ends at a stranger", fails: "strangers/list", list: func(p *process) listFunc {
		return func(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
			if len(p.occupied) > 0 {
				return func(func(driver.Record, error) bool) {}
			}
			return p.Notifier.List(ctx, prefix)
		}
	}},
	{name: "list blocks calls", fails: "list/calls-meanwhile", list: func(p *process) listFunc {
		return func(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
			return func(yield func(driver.Record, error) bool) {
				p.set(true)
				defer p.set(false)
				p.Notifier.List(ctx, prefix)(yield)
			}
		}
	}, acquire: answering(func(p *process, _ driver.Request, _ *driver.Result, err *error) {
		if p.isSet() {
			*err = errors.New("busy")
		}
	})},
	{name: "stranger is granted", fails: "strangers/occupied", acquire: func(p *process) acquireFunc { return p.Notifier.Acquire }},
	{name: "stranger is shown raw", fails: "strangers/occupied", lookup: looking(func([]driver.Record) []driver.Record {
		return []driver.Record{{Name: "name", Holder: "\x1b[0m", Remaining: 1}}
	})},

	// Notices.
	{name: "drops notices", fails: "notices/every-end notices/stop waiting/turns waiting/racing-release", notice: func(p *process, _, _ string, _ *int64) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count++
		return p.count%2 == 0
	}},
	{name: "tells all with a token", fails: "notices/true", notice: func(p *process, name, _ string, token *int64) bool {
		for owner, req := range p.snapshot() {
			if req.Place > 0 && *token != 0 {
				p.notify(name, owner, *token)
			}
		}
		return false
	}},
	{name: "notice of a wrong token", fails: "notices/true break/told", notice: func(_ *process, _, _ string, token *int64) bool { *token++; return true }},
	{name: "notice before the write", fails: "notices/true", release: released(func(p *process, req driver.ReleaseRequest) bool {
		for _, q := range p.listening() {
			for owner := range q.snapshot() {
				got, _ := p.Notifier.Renew(background, []driver.RenewRequest{{Name: req.Name, Owner: owner, TTL: 1}})
				if got[0].State == driver.Waiting && p.once(owner) {
					q.notify(req.Name, owner, got[0].Token)
				}
			}
		}
		time.Sleep(time.Millisecond)
		return p.end(req.Name, req.Owner, req.Keep)
	})},
	{name: "expiry is silent", fails: "notices/found-expired", acquire: func(p *process) acquireFunc {
		return func(ctx context.Context, req driver.Request) (driver.Result, error) {
			p.set(true)
			defer p.set(false)
			return p.acquire(ctx, req)
		}
	}, notice: func(p *process, _, _ string, _ *int64) bool { return !p.isSet() }},
	{name: "tells every process", fails: "notices/true", notice: func(p *process, name, owner string, token *int64) bool {
		for _, q := range p.listening() {
			q.notify(name, owner, *token)
		}
		return false
	}},
	{name: "tells all to look", fails: "notices/true", notice: func(p *process, name, _ string, _ *int64) bool {
		p.notify(name, "", 0)
		return false
	}},
	{name: "stop does nothing", fails: "notices/stop", notifies: func(p *process, f func(string, string, int64)) func() {
		p.listen(f)
		return func() {}
	}},
	{name: "one listener", fails: "notices/stop", notifies: func(p *process, f func(string, string, int64)) func() {
		p.mu.Lock()
		p.listeners = nil
		p.mu.Unlock()
		return p.listen(f)
	}},

	// Detached entries, contexts, Close.
	{name: "close frees detached", fails: "detached/outlives-store", close: func(p *process) error {
		for owner, req := range p.snapshot() {
			p.end(req.Name, owner, 0)
		}
		return nil
	}},
	{name: "crash frees detached", claims: crashFrees, fails: "detached/outlives-process", backing: func(w *world, b *Backing) {
		b.Crash = func(_ testing.TB, s driver.Store) {
			for owner, req := range processOf(s).snapshot() {
				processOf(s).end(req.Name, owner, 0)
			}
		}
	}},
	{name: "ignores contexts", fails: "contexts/ended-before", call: func(_ *process, _ context.Context, apply, _ func() error) error { return apply() }},
	{name: "ended calls apply", fails: "contexts/cancel-storm", call: func(_ *process, ctx context.Context, apply, works func() error) error {
		if ctx.Err() != nil {
			_ = apply()
		}
		return works()
	}},
	{name: "errors leak owner", fails: "contexts/ended-before faults/secret", call: calling(func(_ *process, _ context.Context, err error) error {
		if err != nil {
			err = fmt.Errorf("SecretOfOwner: %w", err)
		}
		return err
	})},
	{name: "close does nothing", fails: "closing/twice", close: func(*process) error { return nil }},
	{name: "close fails twice", fails: "closing/twice", close: func(p *process) error {
		if !p.once(fmt.Sprint(p.closed)) {
			return errors.New("closed")
		}
		return nil
	}},
	{name: "closed calls hang", fails: "closing/under-way closing/twice", call: func(p *process, ctx context.Context, _, works func() error) error {
		err := works()
		if errors.Is(err, driver.ErrClosed) {
			<-ctx.Done()
			return ctx.Err()
		}
		return err
	}},
	{name: "close frees all", fails: "closing/other-stores", close: func(p *process) error {
		for _, q := range p.listening() {
			p.free(q)
		}
		return nil
	}},
	{name: "work outlives close", fails: "closing/twice", acquire: answering(func(_ *process, _ driver.Request, res *driver.Result, _ *error) {
		if res.Waiting {
			go time.Sleep(30 * time.Second)
		}
	})},

	// Faults.
	{name: "restart frees", fails: "faults/restart", backing: func(w *world, b *Backing) {
		b.Restart = func(testing.TB) {
			for _, p := range w.listening() {
				w.free(p)
			}
		}
	}},
	{name: "restart keeps", claims: restartFrees, fails: "faults/restart", backing: func(_ *world, b *Backing) { b.Restart = func(testing.TB) {} }},
	{name: "crash frees", fails: "faults/crash", backing: func(w *world, b *Backing) {
		b.Crash = func(_ testing.TB, s driver.Store) { w.free(processOf(s)) }
	}},
	{name: "crash keeps", claims: crashFrees, fails: "faults/crash", backing: func(_ *world, b *Backing) { b.Crash = func(testing.TB, driver.Store) {} }},
	{name: "says not applied", fails: "faults/acquire-reply-lost faults/renew-reply-lost faults/release-reply-lost",
		call: calling(func(_ *process, _ context.Context, err error) error {
			if errors.Is(err, errLost) {
				return driver.NotApplied(err)
			}
			return err
		})},
	{name: "lost means refused", fails: "faults/acquire-request-lost", call: calling(func(_ *process, _ context.Context, err error) error {
		if errors.Is(err, errLost) {
			return nil
		}
		return err
	})},
	{name: "busy is an error", fails: "faults/busy", call: calling(func(_ *process, _ context.Context, err error) error {
		if driver.IsNotApplied(err) {
			return errors.New(err.Error())
		}
		return err
	})},
	{name: "silence outlasts the deadline", fails: "faults/silence", call: calling(func(p *process, _ context.Context, err error) error {
		if p.silent {
			time.Sleep(time.Minute)
		}
		return err
	})},
	{name: "silence is a refusal", fails: "faults/silence", call: calling(func(p *process, _ context.Context, err error) error {
		if p.silent {
			return nil
		}
		return err
	})},
	{name: "severed store is dead", fails: "faults/severed", call: calling(func(p *process, _ context.Context, err error) error {
		if p.cut {
			return errLost
		}
		return err
	})},
	{name: "severed store is silent", fails: "faults/severed", notice: func(p *process, _, _ string, _ *int64) bool { return !p.cut }},
}
