package holdfast

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Adopt makes a handle on the hold that a ticket stands for. Another Client has acquired that
// hold, most often in another process. Adopt renews the hold, which proves that it still lasts,
// and compares its token with that of the ticket (Guarantees().Lookup); then this Client renews
// the hold as its own, and its Release ends it. The deadline counts from the moment before that
// renewal was sent.
//
// If the hold of the ticket is over, the error matches [ErrNotHeld]; nothing is acquired and
// nothing is released then, whichever process has the lock by that time.
//
// Adopt does not check whether the ticket was adopted before: every process that has the ticket
// can adopt it, and then shares the hold; see [Lock.Ticket]. Other acquisitions of the name by
// this Client, in progress or later, wait for the end of the hold as those of any other Client
// do.
//
// Of the options, TTL (0 means that of the ticket), MinHold, MaxHold and NoRenew are used.
// MinHold and MaxHold count from the adoption; the rest of the acquirer's MinHold stays in force
// at least.
//
// Adopt keeps trying while the store does not answer, as Acquire does, within ctx.
//
// Errors: ErrNotHeld; [ErrInvalid] if it is no ticket, or one of a name that does not begin with
// the Client's prefix; [ErrUnavailable], [ErrUnsupported], [ErrClosed]. After an error the hold
// goes on as if Adopt had not been called, but may have been extended.
func (c *Client) Adopt(ctx context.Context, ticket Ticket, o *Options) (*Lock, error) {
	fields, err := ticket.decode()
	if err != nil {
		return nil, fmt.Errorf("holdfast: adopt: %w", err)
	}
	name, ok := strings.CutPrefix(fields.Name, c.prefix)
	if !ok {
		return nil, fmt.Errorf("holdfast: adopt %q: %w: the name does not begin with the Client's prefix", fields.Name, ErrInvalid)
	}
	lock, err := c.adopt(ctx, name, fields, o)
	if err != nil {
		return nil, opError("adopt", name, err)
	}
	return lock, nil
}

func (c *Client) adopt(ctx context.Context, name string, fields *ticketFields, o *Options) (*Lock, error) {
	if _, err := c.fullName(name); err != nil {
		return nil, err
	}
	op := c.newAdoptOp(ctx, fields, o)
	if err := c.checkCall(ctx, &op.options); err != nil {
		return nil, err
	}
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.activeCalls.Done()
	began := c.clock.now()
	if err := op.verifyTicket(ctx); err != nil {
		return nil, err
	}
	lock := op.firstLock()
	took := c.clock.now() - began
	if c.log != nil {
		c.log.DebugContext(ctx, "lock adopted", "name", name, "token", op.lease.token, "waited", took)
	}
	if c.hooks.Acquired != nil {
		c.hooks.Acquired(name, op.lease.token, took)
	}
	return lock, nil
}

// An adoptOp is one call of Adopt.
type adoptOp struct {
	leaseAndHandle
	options Options
}

func (c *Client) newAdoptOp(ctx context.Context, fields *ticketFields, o *Options) *adoptOp {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.TTL == 0 {
		opts.TTL = fields.TTL
	}
	a := &adoptOp{options: opts.withDefaults(&c.options)}
	a.options.Detached = true
	a.options.MinHold = max(a.options.MinHold, fields.Keep)
	a.lease = lease{
		c:            c,
		fullName:     fields.Name,
		owner:        fields.Owner,
		token:        fields.Token,
		ttl:          a.options.TTL,
		minHold:      a.options.MinHold,
		maxHold:      a.options.MaxHold,
		autoRenew:    !a.options.NoRenew,
		detached:     true,
		adopted:      true,
		ticketIssued: true,
		heapIndex:    notScheduled,
		openHandles:  1,
	}
	a.lease.raiseLatestExpiry(max(fields.Left, fields.TTL))
	a.handle.lease = &a.lease
	a.handle.valuesCtx = ctx
	a.lease.handles = &a.handle
	return a
}

// verifyTicket renews the lease of the ticket until the store has answered, and then activates it
// in this Client.
func (a *adoptOp) verifyTicket(ctx context.Context) error {
	c := a.lease.c
	w := retryWaiter{c: c, ctx: ctx, fullName: a.lease.fullName}
	budget := outageBudget{c: c, name: c.stripPrefix(a.lease.fullName)}
	for {
		sent := c.clock.now()
		err := a.renewAndCompare(ctx, &budget)
		if err == nil {
			err = a.lease.activate(sent, &driver.AcquireResult{Token: a.lease.token})
		}
		if err == nil || errors.Is(err, ErrNotHeld) {
			return err
		}
		after, err := budget.retryDelay(ctx, sent, err)
		if err != nil {
			return err
		}
		if err := w.waitOutage(after); err != nil {
			return err
		}
	}
}

// renewAndCompare renews the lease and compares it with the ticket.
func (a *adoptOp) renewAndCompare(ctx context.Context, budget *outageBudget) error {
	l, c := &a.lease, a.lease.c
	req := []driver.RenewRequest{{Name: l.fullName, Owner: l.owner, TTL: l.ttl}}
	outcomes, err := request(c, ctx, min(c.requestTimeout, l.ttl), func(ctx context.Context) ([]driver.RenewOutcome, error) {
		return c.store.Renew(ctx, req)
	})
	switch {
	case len(outcomes) == 1 && outcomes[0] == driver.RenewLost:
		return errTicketExpired
	case len(outcomes) == 1 && outcomes[0] == driver.Renewed:
	case err != nil:
		return err
	default:
		return errNoOutcome
	}
	budget.noteAnswer()
	if !c.guarantees.Lookup {
		return nil
	}
	rec, err := c.lookupRecord(ctx, l.fullName)
	if err != nil {
		return err
	}
	if rec.Kept || rec.Token != 0 && rec.Token != l.token {
		return errTicketExpired
	}
	l.originalHolder, l.metadata = rec.Holder, rec.Metadata
	return nil
}

// hasAdopted reports whether the Client has adopted the lease of a name that has this token.
func (c *Client) hasAdopted(full string, token int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.adoptedLease(full, token) != nil
}

// adoptedLease returns the adopted lease of a name that has this token, or nil. The caller holds
// c.mu.
func (c *Client) adoptedLease(full string, token int64) *lease {
	for l := range c.adopted {
		if token != 0 && l.token == token && l.fullName == full {
			return l
		}
	}
	return nil
}

// errTicketExpired is the error for a ticket if its lease is over.
var errTicketExpired = fmt.Errorf("%w: the hold of this ticket is over, or in another store", ErrNotHeld)
