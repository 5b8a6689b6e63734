package holdfast

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Ticket stands for the hold of a lock, so that another process can continue it. It is text
// without spaces that can be stored, sent, and passed to a command. It contains the secret of the
// owner: a process that has the ticket can renew and release the lock, so keep it from those that
// may not. A program that logs it by package log/slog logs the name of the lock only.
//
// A ticket is valid as long as the hold lasts, and no longer: it cannot take a lock.
type Ticket string

// ticketPrefix begins every ticket. A later form that this version must not misread will have
// another number.
const ticketPrefix = "holdfast1."

// ticketFields are the contents of a ticket.
type ticketFields struct {
	Name  string        `json:"name"` // with the prefix
	Owner string        `json:"owner"`
	Token int64         `json:"token,omitempty"`
	TTL   time.Duration `json:"ttl_ns"`

	// Of its Lock, for Holder and Metadata, and for what a Client knows of its own holds.
	Holder   string            `json:"holder,omitempty"`
	Limit    int               `json:"limit,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	// Left is for how long the store may keep the hold at most, if it is not renewed: the longest
	// time that it was requested for.
	Left time.Duration `json:"left_ns,omitempty"`
}

// decode returns the contents of the ticket.
func (t Ticket) decode() (*ticketFields, error) {
	code, ok := strings.CutPrefix(string(t), ticketPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: it is no ticket of this version", ErrInvalid)
	}
	fields := &ticketFields{}
	data, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil || json.Unmarshal(data, fields) != nil || fields.Name == "" ||
		checkText("the owner", fields.Owner) != nil || !printable(fields.Holder) || fields.Left < 0 {
		return nil, fmt.Errorf("%w: the ticket is damaged", ErrInvalid)
	}
	return fields, nil
}

// LogValue implements [slog.LogValuer]. It keeps the secret out of the log.
func (t Ticket) LogValue() slog.Value {
	fields, err := t.decode()
	if err != nil {
		return slog.StringValue("no ticket")
	}
	return slog.StringValue("ticket for " + fields.Name)
}

// HandOver gives the lock away: it returns a ticket, with which [Client.Adopt] continues the hold
// elsewhere, and ends this handle without a release. Its contexts end with [ErrHandedOver] before
// HandOver returns, renewal stops, and Release, which may be deferred as usual, does nothing. So
// the lock has one holder at any time, as long as the ticket is adopted once.
//
// The receiver of the ticket has the rest of the TTL to adopt it: [Lock.Extend] the lock first if
// that may take a while. If the ticket is not adopted, the lock is free when its TTL is over.
// MaxHold does not stay in force.
//
// The lock must have been acquired with Options.Detached, and a reentrant one have no other handle,
// else the error is [ErrInvalid]; if it is no longer held, it is that of [Lock.Err]. After an error
// nothing has changed.
func (l *Lock) HandOver() (Ticket, error) {
	lease, c := l.lease, l.lease.c
	lease.checkDeadline()
	c.mu.Lock()
	err := l.contextErr()
	switch {
	case !lease.options.Detached:
		err = fmt.Errorf("%w: it was not acquired with Options.Detached", ErrInvalid)
	case err == nil && len(lease.locks) > 1:
		err = fmt.Errorf("%w: it has other handles", ErrInvalid)
	}
	if err != nil {
		c.mu.Unlock()
		return "", opError("hand over", l.Name(), err)
	}
	lease.end(&ErrHandedOver)
	c.activeCalls.Add(1) // Close waits for the hook.
	defer c.activeCalls.Done()
	for lease.inFlight > 0 { // Nothing is written after HandOver has returned.
		c.changed.Wait()
	}
	lease.finish(nil)
	c.mu.Unlock()
	lease.emit(Event{Kind: EventHandedOver, Held: c.clock.now() - lease.since})
	data, _ := json.Marshal(ticketFields{ // Strings and numbers can be encoded.
		Name: lease.name, Owner: lease.owner, Token: lease.tokens.own, TTL: lease.options.TTL,
		Holder: l.Holder(), Limit: lease.options.limit(), Metadata: lease.options.Metadata, Left: lease.longest,
	})
	return ticketPrefix + Ticket(base64.RawURLEncoding.EncodeToString(data)), nil
}

// Adopt makes a handle on the hold that a ticket stands for. Another Client has acquired that hold,
// most often in another process. Adopt renews the hold, which proves that it still lasts, and
// compares its token with that of the ticket; then this Client renews the hold as its own, and its
// Release ends it. The deadline counts from the moment before that renewal was sent.
//
// If the hold of the ticket is over, the error matches [ErrNotHeld]. Nothing is acquired then, and
// a later hold of the lock stays as it is.
//
// Adopt does not check whether the ticket was adopted before, by this Client or another. All Locks
// of a ticket share the hold. The first Release ends it, and the others are lost at their next
// renewal. Other acquisitions of the name by this Client wait for the end, as those of others do.
//
// Of the options, TTL (0 means that of the ticket), MaxHold and NoRenew are used. MaxHold counts
// from the adoption. While the store does not answer, Adopt keeps trying within ctx, as Acquire.
//
// Errors: ErrNotHeld; [ErrInvalid] if it is no ticket, or one of a name that does not begin with
// the Client's prefix; [ErrUnavailable], [ErrUnsupported], [ErrClosed]. After an error the hold
// goes on as if Adopt had not been called, but may have been extended.
func (c *Client) Adopt(ctx context.Context, ticket Ticket, o *Options) (*Lock, error) {
	fields, err := ticket.decode()
	if err != nil {
		return nil, fmt.Errorf("holdfast: adopt: %w", err)
	}
	name, ok := strings.CutPrefix(fields.Name, c.config.Prefix)
	if !ok {
		return nil, fmt.Errorf("holdfast: adopt %q: %w: the name does not begin with the Client's prefix", fields.Name, ErrInvalid)
	}
	options := Options{}
	if o != nil {
		options = Options{TTL: o.TTL, MaxHold: o.MaxHold, NoRenew: o.NoRenew}
	}
	options.TTL, options.Detached, options.Metadata = cmp.Or(options.TTL, fields.TTL), true, fields.Metadata
	if options.Metadata == nil {
		options.Metadata = map[string]string{} // not that of Config
	}
	options.Shared, options.Limit = fields.Limit == driver.Shared, fields.Limit%driver.Shared
	return (&lease{c: c, op: opAdopt, ticket: fields}).acquire(ctx, name, &options)
}
