package holdfast

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"
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

	// Keep is the rest of MinHold.
	Keep time.Duration `json:"keep_ns,omitempty"`

	// Left is for how long the store may keep the hold at most, if it is not renewed.
	Left time.Duration `json:"left_ns,omitempty"`
}

// encode returns the ticket.
func (f *ticketFields) encode() Ticket {
	data, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return ticketPrefix + Ticket(base64.RawURLEncoding.EncodeToString(data))
}

// decode returns the contents of the ticket.
func (t Ticket) decode() (*ticketFields, error) {
	code, ok := strings.CutPrefix(string(t), ticketPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: it is not a ticket of this version", ErrInvalid)
	}
	fields := &ticketFields{}
	data, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil || json.Unmarshal(data, fields) != nil || fields.Name == "" || fields.Owner == "" || fields.Keep < 0 || fields.Left < 0 {
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

// Ticket returns a ticket for the hold of the lock, with which [Client.Adopt] makes another
// handle on it, in this process or in any other. This Lock stays as it is.
//
// There are then two handles on one hold, with one token, and neither knows of the other: both
// may be held, both renew, and a Release of either ends the hold for both. Nothing keeps their
// holders apart but what they agree on, and no fencing token distinguishes them. To give the lock
// away, use [Lock.HandOver].
//
// The lock must have been acquired with Options.Detached, else the error is [ErrInvalid]; if it
// is no longer held, it is that of [Lock.Err].
func (l *Lock) Ticket() (Ticket, error) {
	ticket, err := l.makeTicket()
	if err != nil {
		return "", opError("make a ticket for", l.Name(), err)
	}
	return ticket, nil
}

// makeTicket returns a ticket, and records that it exists.
func (l *Lock) makeTicket() (Ticket, error) {
	lease := l.lease
	if !lease.detached {
		return "", fmt.Errorf("%w: it was not acquired with Options.Detached", ErrInvalid)
	}
	if err := l.Err(); err != nil {
		return "", err
	}
	lease.c.mu.Lock()
	lease.ticketIssued = true
	lease.c.mu.Unlock()
	fields := ticketFields{Name: lease.fullName, Owner: lease.owner, Token: lease.token, TTL: lease.ttl}
	now := lease.c.clock.now()
	fields.Left = max(time.Duration(lease.latestExpiry.Load())-now, 0)
	if lease.minHold > 0 {
		fields.Keep = max(lease.grantedAt+lease.minHold-now, 0)
	}
	return fields.encode(), nil
}
