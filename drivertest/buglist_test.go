package drivertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
	{name: "limit one is shared", fails: "guarantees/limit-one limits/prefix", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Limit == 1 {
			req.Limit = driver.Shared
		}
	})},
	{name: "tokens unclaimed", claims: noFencing, fails: "guarantees/refusals exclusion/held-name", acquire: answering(
		func(_ *process, _ driver.Request, res *driver.Result, _ *error) { res.Token = 7 })},
	{name: "tokens shown unclaimed", claims: noFencing, fails: "guarantees/refusals", lookup: showing(func(*driver.Record) {})},
	{name: "limits unclaimed", claims: noLimits, fails: "guarantees/refusals", acquire: func(p *process) acquireFunc { return p.Notifier.Acquire }},
	{name: "keep unclaimed", claims: noKeep, fails: "guarantees/refusals", keepUnclaimed: func(p *process) releaseFunc { return p.Notifier.Release }},

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
	{name: "second Acquire refused", fails: "exclusion/second-acquire concurrency/one-owner",
		acquire: answering(func(_ *process, _ driver.Request, _ *driver.Result, err *error) { *err = nil })},
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
	{name: "refusal names another", fails: "exclusion/refusal-record keep/records", acquire: answering(
		func(_ *process, _ driver.Request, res *driver.Result, _ *error) { res.Held.Holder = "another" })},
	{name: "refusal leaks owner", fails: "exclusion/secret", acquire: answering(
		func(_ *process, req driver.Request, res *driver.Result, _ *error) { res.Held.Holder = req.Owner })},
	{name: "lookup leaks owner", fails: "exclusion/secret", lookup: showing(func(rec *driver.Record) { rec.Holder = "SecretOfOwner" })},
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
	{name: "refusal raises token", fails: "tokens/floor-of-a-refusal", acquire: answering(func(p *process, req driver.Request, res *driver.Result, _ *error) {
		if req.Floor > 0 && !res.Granted {
			p.set(true)
		}
		if res.Granted && p.isSet() {
			res.Token += driver.MaxLead.Microseconds()
		}
	})},
	{name: "block not reserved", fails: "tokens/block break/block", acquire: asking(func(_ *process, req *driver.Request) { req.Tokens = 0 })},
	{name: "block too large", fails: "tokens/block-invalid", acquire: asking(func(_ *process, req *driver.Request) { req.Tokens = min(req.Tokens, driver.MaxTokens) })},

	// Renew.
	{name: "renew ignores token", fails: "renew/hold-other-token renew/place", renew: renewing(func(_ *process, req *driver.RenewRequest) { req.Token = 0 })},
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
	{name: "release forgets places", fails: "release/place waiting/given-up notices/every-end", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return p.state(req.Name, req.Owner) != driver.Waiting && p.end(req.Name, req.Owner, req.Keep)
	})},
	{name: "ignores keep", fails: "keep/taken keep/time keep/repeated break/keep queue/keep", release: released(func(p *process, req driver.ReleaseRequest) bool {
		return p.end(req.Name, req.Owner, 0)
	})},
	{name: "keep is not marked", fails: "keep/records", lookup: showing(func(rec *driver.Record) { rec.Kept = false })},

	// The queue and limits.
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
	{name: "places never end", fails: "queue/expired-places queue/expired-hold queue/crash limits/writer-waits",
		acquire: asking(func(_ *process, req *driver.Request) {
			if req.Place > 0 {
				req.Place = long
			}
		})},
	{name: "place forgets request", fails: "queue/request", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Place > 0 {
			req.Holder = "somebody"
		}
	})},
	{name: "count has the hold", fails: "queue/count", lookup: showing(func(rec *driver.Record) { rec.Waiting++ })},
	{name: "readers are writers", fails: "limits/readers limits/own-lease lookup/several break/one-of-several",
		acquire: asking(func(_ *process, req *driver.Request) { req.Limit = 0 })},
	{name: "writers are readers", fails: "limits/readers limits/sum exclusion/held-name", acquire: asking(func(_ *process, req *driver.Request) { req.Limit = driver.Shared })},
	{name: "readers overtake", fails: "limits/writer-waits limits/prefix", acquire: answering(func(p *process, req driver.Request, res *driver.Result, _ *error) {
		found, _ := p.Notifier.Lookup(background, req.Name)
		if !res.Granted && req.Limit == driver.Shared && len(found) > 0 && found[0].Limit == driver.Shared {
			*res = driver.Result{Granted: true, Token: time.Now().UnixMicro()}
		}
	})},
	{name: "limit is one too many", fails: "limits/sum", acquire: asking(func(_ *process, req *driver.Request) {
		if req.Limit > 1 && req.Limit < driver.Shared {
			req.Limit++
		}
	})},

	// Break.
	{name: "break does nothing", fails: "break/all break/keep break/token break/one-of-several", breaks: breaks(func(*process, string, int64) []driver.Record { return nil })},
	{name: "break ignores token", fails: "break/token break/places-stay break/one-of-several", breaks: breaks(func(p *process, name string, _ int64) []driver.Record {
		return p.broken(name, 0)
	})},
	{name: "break is silent", fails: "break/told", notice: func(_ *process, _, _ string, token *int64) bool { return *token != 0 }},

	// Records.
	{name: "lookup knows no token", fails: "lookup/held-name", lookup: showing(func(rec *driver.Record) { rec.Token = 0 })},
	{name: "lookup drops metadata", fails: "names/metadata names/metadata-of-this-hold lookup/several", lookup: showing(func(rec *driver.Record) { rec.Metadata = nil })},
	{name: "list ignores prefix", fails: "list/held-names list/literal-prefix", list: listing(none, func(_ string, all []driver.Record) []driver.Record { return all })},
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

	// Notices.
	{name: "drops notices", fails: "notices/every-end notices/stop waiting/turns waiting/racing-release", notice: func(p *process, _, _ string, _ *int64) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count++
		return p.count%2 == 0
	}},
	{name: "notice of a wrong token", fails: "notices/true break/told", notice: func(_ *process, _, _ string, token *int64) bool { *token++; return true }},
	{name: "expiry is silent", fails: "notices/found-expired", acquire: func(p *process) acquireFunc {
		return func(ctx context.Context, req driver.Request) (driver.Result, error) {
			p.set(true)
			defer p.set(false)
			return p.acquire(ctx, req)
		}
	}, notice: func(p *process, _, _ string, _ *int64) bool { return !p.isSet() }},

	// Detached entries, contexts, Close.
	{name: "close frees detached", fails: "detached/outlives-store", close: func(p *process) error {
		for owner, req := range p.snapshot() {
			p.end(req.Name, owner, 0)
		}
		return nil
	}},
	{name: "ignores contexts", fails: "contexts/ended-before", call: func(_ *process, _ context.Context, apply, _ func() error) error { return apply() }},
	{name: "errors leak owner", fails: "contexts/ended-before faults/secret", call: calling(func(_ *process, _ context.Context, err error) error {
		if err != nil {
			err = fmt.Errorf("SecretOfOwner: %w", err)
		}
		return err
	})},
	{name: "close does nothing", fails: "closing/twice", close: func(*process) error { return nil }},
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

	// Faults.
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
	{name: "severed store is silent", fails: "faults/severed", notice: func(p *process, _, _ string, _ *int64) bool { return !p.cut }},
}
