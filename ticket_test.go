package holdfast_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// reprint changes what is in a ticket.
func reprint(t *testing.T, ticket holdfast.Ticket, change func(map[string]any)) holdfast.Ticket {
	t.Helper()
	mark, code, _ := strings.Cut(string(ticket), ".")
	data, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&text); err != nil {
		t.Fatal(err)
	}
	change(text)
	if data, err = json.Marshal(text); err != nil {
		t.Fatal(err)
	}
	return holdfast.Ticket(mark + "." + base64.RawURLEncoding.EncodeToString(data))
}

// A ticket whose hold is over is refused and does nothing to a successor.
func TestStaleTicket(t *testing.T) {
	ends := map[string]func(t *testing.T, c *holdfast.Client, ticket holdfast.Ticket){
		"released": func(t *testing.T, c *holdfast.Client, ticket holdfast.Ticket) { release(t, adopt(t, c, ticket, nil)) },
		"expired":  func(*testing.T, *holdfast.Client, holdfast.Ticket) { time.Sleep(31 * time.Second) },
		"broken": func(t *testing.T, c *holdfast.Client, _ holdfast.Ticket) {
			if _, err := c.Break(t.Context(), "a", 0); err != nil {
				t.Error(err)
			}
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := memstore.New()
				c, other := open(t, store, nil), open(t, store, nil)
				ticket := given(t, c, "a", holdfast.Options{})
				end(t, c, ticket)
				_, err := c.Adopt(ctx, ticket, nil)
				wantErr(t, err, holdfast.ErrNotHeld)
				free(t, c, "a")
				successor := acquire(t, other, "a", nil)
				_, err = c.Adopt(ctx, ticket, nil)
				wantErr(t, err, holdfast.ErrNotHeld)
				time.Sleep(time.Minute)
				if err := successor.Err(); err != nil {
					t.Errorf("the successor: %v", err)
				}
			})
		})
	}
}

// The token of a ticket is compared, and the time of one that is kept is over.
func TestTicketWithAnotherToken(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		ticket := given(t, c, "a", holdfast.Options{})
		_, err := c.Adopt(ctx, reprint(t, ticket, func(text map[string]any) { text["token"] = 7 }), nil)
		wantErr(t, err, holdfast.ErrNotHeld)
		release(t, adopt(t, c, ticket, nil))
		_, err = c.Adopt(ctx, ticket, nil)
		wantErr(t, err, holdfast.ErrNotHeld)
	})
}

func TestNoTicket(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), &holdfast.Config{Prefix: "x:"})
		whole := given(t, c, "a", holdfast.Options{})
		for name, ticket := range map[string]holdfast.Ticket{
			"empty":         "",
			"other text":    "ticket",
			"other version": "holdfast2." + whole[len("holdfast1."):],
			"cut short":     whole[:len(whole)-3],
			"no name":       reprint(t, whole, func(text map[string]any) { delete(text, "name") }),
			"no owner":      reprint(t, whole, func(text map[string]any) { delete(text, "owner") }),
			"other prefix":  reprint(t, whole, func(text map[string]any) { text["name"] = "a" }),
			"no more":       reprint(t, whole, func(text map[string]any) { text["name"] = "x:" }),
			"no TTL":        reprint(t, whole, func(text map[string]any) { text["ttl_ns"] = -1 }),
			"no time":       reprint(t, whole, func(text map[string]any) { text["left_ns"] = -1 }),
		} {
			if _, err := c.Adopt(ctx, ticket, nil); err == nil {
				t.Errorf("%s: it was adopted", name)
			} else {
				wantErr(t, err, holdfast.ErrInvalid)
			}
		}
		if lock := adopt(t, c, whole, nil); lock.Name() != "a" {
			t.Errorf("name %q", lock.Name())
		}
	})
}

func TestTicketsNeedADetachedLockThatIsHeld(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		lock := acquire(t, c, "a", nil)
		_, err := lock.HandOver()
		wantErr(t, err, holdfast.ErrInvalid)
		if err := lock.Err(); err != nil {
			t.Errorf("after a refused hand-over: %v", err)
		}
		release(t, lock)

		o := &holdfast.Options{Detached: true, Reentrant: true, MaxHold: time.Minute}
		lock = acquire(t, c, "a", o)
		inner := acquire(t, c, "a", o)
		_, err = lock.HandOver()
		wantErr(t, err, holdfast.ErrInvalid)
		release(t, inner)
		time.Sleep(time.Minute)
		_, err = lock.HandOver()
		wantErr(t, err, holdfast.ErrLost)
		wantErr(t, lock.Release(), holdfast.ErrLost)

		lock = acquire(t, c, "b", o)
		release(t, lock)
		_, err = lock.HandOver()
		wantErr(t, err, holdfast.ErrReleased)
	})
}

func TestTicketHidesItsSecretInLogs(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		ticket := given(t, c, "a", holdfast.Options{})
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("given", "ticket", ticket, "no", holdfast.Ticket("x"))
		if strings.Contains(log.String(), string(ticket)) || !strings.Contains(log.String(), "ticket for a") {
			t.Errorf("logged: %s", log.String())
		}
		_, err := c.Adopt(ctx, reprint(t, ticket, func(text map[string]any) {
			text["ttl_ns"] = 1
			text["owner"] = "secret"
		}), nil)
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the error shows the secret: %v", err)
		}
	})
}

// asked is a store that remembers what it was asked for last.
type asked struct {
	driver.Store
	last driver.Request
}

func (s *asked) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	s.last = req
	return s.Store.Acquire(ctx, req)
}

func TestDetachedIsAskedOfTheStore(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := &asked{Store: memstore.New()}
		c := open(t, store, nil)
		for _, detached := range []bool{true, false} {
			release(t, acquire(t, c, "a", &holdfast.Options{Detached: detached}))
			if store.last.Detached != detached {
				t.Errorf("Options.Detached is %v, and the store was asked for %v", detached, store.last.Detached)
			}
		}
	})
}
