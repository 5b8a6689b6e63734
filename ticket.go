package holdfast

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// A Ticket stands for the hold of a lock, for whoever is to go on with it: text
// without spaces that can be stored, sent, and given to a command. It holds the
// secret of the owner: who has the ticket can renew and release the lock, so
// keep it from those who may not. A program that logs it by package log/slog
// logs the name of the lock only.
//
// A ticket is of use as long as the hold lasts, and no longer: it cannot take a
// lock.
type Ticket string

// ticketMark begins every ticket. A later form that this version must not
// misread will have another number.
const ticketMark = "holdfast1."

// A ticketText is what is in a ticket.
type ticketText struct {
	Name  string        `json:"name"` // with the prefix
	Owner string        `json:"owner"`
	Token int64         `json:"token,omitempty"`
	TTL   time.Duration `json:"ttl_ns"`

	// Keep is what was left of MinHold.
	Keep time.Duration `json:"keep_ns,omitempty"`
}

func (t *ticketText) ticket() Ticket {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return ticketMark + Ticket(base64.RawURLEncoding.EncodeToString(data))
}

// open reads the ticket.
func (t Ticket) open() (*ticketText, error) {
	code, ok := strings.CutPrefix(string(t), ticketMark)
	if !ok {
		return nil, fmt.Errorf("%w: it is not a ticket of this version", ErrInvalid)
	}
	text := &ticketText{}
	data, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil || json.Unmarshal(data, text) != nil || text.Name == "" || text.Owner == "" || text.Keep < 0 {
		return nil, fmt.Errorf("%w: the ticket is damaged", ErrInvalid)
	}
	return text, nil
}

// LogValue implements [slog.LogValuer]. It keeps the secret out of the log.
func (t Ticket) LogValue() slog.Value {
	text, err := t.open()
	if err != nil {
		return slog.StringValue("no ticket")
	}
	return slog.StringValue("ticket for " + text.Name)
}

// Ticket returns a ticket for the hold of the lock, by which [Client.Adopt] makes
// another handle on it, in this process or in any other. This one stays as it
// is.
//
// There are then two handles on one hold, with one token, and neither knows of
// the other: both may be held, both renew, and a Release of either ends the hold
// for both. Nothing keeps their holders apart but what they agree on, and no
// fencing token tells one from the other. To give the lock away, use
// [Lock.HandOver].
//
// The lock must have been acquired with Options.Detached, else the error is
// [ErrInvalid]; if it is no longer held, it is that of [Lock.Err].
func (l *Lock) Ticket() (Ticket, error) {
	ticket, err := l.ticket()
	if err != nil {
		return "", failed("make a ticket for", l.Name(), err)
	}
	return ticket, nil
}

func (l *Lock) ticket() (Ticket, error) {
	h := l.hold
	if !h.detached {
		return "", fmt.Errorf("%w: it was not acquired with Options.Detached", ErrInvalid)
	}
	if err := l.Err(); err != nil {
		return "", err
	}
	h.c.mu.Lock()
	h.shared = true
	h.c.mu.Unlock()
	text := ticketText{Name: h.full, Owner: h.owner, Token: h.token, TTL: h.ttl}
	if h.minHold > 0 {
		text.Keep = max(h.began+h.minHold-h.c.clock.now(), 0)
	}
	return text.ticket(), nil
}
