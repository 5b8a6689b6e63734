package holdfast

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Adopt makes a handle on the hold that a ticket stands for, which another Client
// has acquired, most often in another process. The store is asked to renew the
// hold, which proves that it still lasts, and is compared with the ticket's token
// (Guarantees().Lookup); then this Client renews it as its own, and its Release
// ends it. The deadline counts from the moment before that renewal was sent.
//
// A ticket whose hold is over is refused with an error that matches [ErrNotHeld];
// nothing is taken and nothing is freed by it, whoever has the lock by then.
//
// Adopt does not look whether the ticket was adopted before: everybody who has
// it can, and then shares the hold; see [Lock.Ticket]. Other acquisitions of
// the name by this Client, under way or to come, wait for the end of the hold as
// those of any other Client do.
//
// Of the options, TTL (0 means that of the ticket), MinHold, MaxHold and NoRenew
// are used. MinHold and MaxHold count from the adoption; what was left of the
// acquirer's MinHold stays in force at least.
//
// It rides out a store that does not answer as Acquire does, within ctx.
//
// Errors: ErrNotHeld; [ErrInvalid] if it is no ticket, or one of a name that
// does not begin with the Client's prefix; [ErrUnavailable], [ErrUnsupported],
// [ErrClosed]. After an error the hold goes on as if Adopt had not been called,
// but may have been prolonged.
func (c *Client) Adopt(ctx context.Context, ticket Ticket, o *Options) (*Lock, error) {
	text, err := ticket.open()
	if err != nil {
		return nil, fmt.Errorf("holdfast: adopt: %w", err)
	}
	name, ok := strings.CutPrefix(text.Name, c.prefix)
	if !ok {
		return nil, fmt.Errorf("holdfast: adopt %q: %w: the name does not begin with the Client's prefix", text.Name, ErrInvalid)
	}
	lock, err := c.adopt(ctx, name, text, o)
	if err != nil {
		return nil, failed("adopt", name, err)
	}
	return lock, nil
}

func (c *Client) adopt(ctx context.Context, name string, text *ticketText, o *Options) (*Lock, error) {
	if _, err := c.full(name); err != nil {
		return nil, err
	}
	g := c.newAdoption(ctx, text, o)
	if err := c.admit(ctx, &g.o); err != nil {
		return nil, err
	}
	defer c.active.Done()
	began := c.clock.now()
	if err := g.prove(ctx); err != nil {
		return nil, err
	}
	took := c.clock.now() - began
	if c.log != nil {
		c.log.DebugContext(ctx, "lock adopted", "name", name, "token", g.hold.token, "waited", took)
	}
	if c.hooks.Acquired != nil {
		c.hooks.Acquired(name, g.hold.token, took)
	}
	return &g.lock, nil
}

// An adoption is one call of Adopt.
type adoption struct {
	grant
	o Options
}

func (c *Client) newAdoption(ctx context.Context, text *ticketText, o *Options) *adoption {
	var asked Options
	if o != nil {
		asked = *o
	}
	if asked.TTL == 0 {
		asked.TTL = text.TTL
	}
	a := &adoption{o: asked.with(&c.options)}
	a.o.Detached = true
	a.o.MinHold = max(a.o.MinHold, text.Keep)
	a.hold = hold{
		c:        c,
		full:     text.Name,
		owner:    text.Owner,
		token:    text.Token,
		ttl:      a.o.TTL,
		minHold:  a.o.MinHold,
		maxHold:  a.o.MaxHold,
		renews:   !a.o.NoRenew,
		detached: true,
		adopted:  true,
		shared:   true,
		place:    unscheduled,
		refs:     1,
	}
	a.lock.hold = &a.hold
	a.lock.values = ctx
	a.hold.locks = &a.lock
	return a
}

// prove asks the store whether the hold lasts until it has an answer, and then
// makes it live here.
func (a *adoption) prove(ctx context.Context) error {
	c := a.hold.c
	v := vigil{c: c, ctx: ctx, full: a.hold.full}
	patience := patience{c: c}
	for {
		sent := c.clock.now()
		err := a.ask(ctx, &patience)
		if err == nil {
			err = a.hold.start(sent, a.hold.token)
		}
		if err == nil || errors.Is(err, ErrNotHeld) {
			return err
		}
		if err := patience.bear(ctx, sent, err); err != nil {
			return err
		}
		if err := v.pause(); err != nil {
			return err
		}
	}
}

// ask renews the hold and compares it with the ticket.
func (a *adoption) ask(ctx context.Context, patience *patience) error {
	h, c := &a.hold, a.hold.c
	req := []driver.RenewRequest{{Name: h.full, Owner: h.owner, TTL: h.ttl}}
	outcomes, err := ask(c, ctx, min(c.timeout, h.ttl), nil, func(ctx context.Context) ([]driver.RenewOutcome, error) {
		return c.store.Renew(ctx, req)
	})
	switch {
	case len(outcomes) == 1 && outcomes[0] == driver.RenewLost:
		return errStale
	case len(outcomes) == 1 && outcomes[0] == driver.Renewed:
	case err != nil:
		return err
	default:
		return errNoOutcome
	}
	patience.answered()
	if !c.can.Lookup {
		return nil
	}
	rec, err := c.lookup(ctx, h.full)
	if err != nil {
		return err
	}
	if rec.Kept || rec.Token != 0 && rec.Token != h.token {
		return errStale
	}
	h.holder, h.metadata = rec.Holder, rec.Metadata
	return nil
}

// errStale is the answer to a ticket whose time is over.
var errStale = fmt.Errorf("%w: the hold of this ticket is over", ErrNotHeld)
