package holdfast_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

func handOver(t *testing.T, lock *holdfast.Lock) holdfast.Ticket {
	t.Helper()
	ticket, err := lock.HandOver()
	if err != nil {
		t.Fatalf("HandOver: %v", err)
	}
	return ticket
}

// given acquires a lock and hands it over.
func given(t *testing.T, c *holdfast.Client, name string, o holdfast.Options) holdfast.Ticket {
	t.Helper()
	o.Detached = true
	return handOver(t, acquire(t, c, name, &o))
}

func adopt(t *testing.T, c *holdfast.Client, ticket holdfast.Ticket, o *holdfast.Options) *holdfast.Lock {
	t.Helper()
	lock, err := c.Adopt(t.Context(), ticket, o)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	return lock
}

// The one holder of a lock is followed by another, in another process; shared ones alike.
func TestHandOver(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		for _, o := range []holdfast.Options{{}, {Shared: true}} {
			first, second := holdfast.New(s, nil), open(t, s, nil)
			o.Detached, o.Metadata = true, map[string]string{"k": "v"}
			lock := acquire(t, first, "a", &o)
			ticket := handOver(t, lock)
			wantErr(t, lock.Err(), holdfast.ErrHandedOver)
			wantErr(t, context.Cause(lock.Context()), holdfast.ErrHandedOver)
			release(t, lock)
			if _, err := lock.HandOver(); err == nil {
				t.Error("it was handed over twice")
			}
			noErr(t, first.Close())
			wantErr(t, failure(second.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
			next := adopt(t, second, ticket, nil)
			if next.Name() != "a" || next.Token() != lock.Token() || next.Holder() != first.Holder() || next.Metadata()["k"] != "v" {
				t.Errorf("adopted: %q, token %d, holder %q, metadata %v", next.Name(), next.Token(), next.Holder(), next.Metadata())
			}
			release(t, next)
			free(t, second, "a")
		}
	})
}

// An adopted lock is held like any other, beside a waiter of the same Client. Its deadline counts
// from the moment before its renewal was sent.
func TestAdoptBesideAWaiter(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		second, store := faulty(t, nil)
		first := open(t, store.Store, nil)
		ticket := given(t, first, "a", holdfast.Options{TTL: time.Minute})
		next := startWaiters(t, second, "a", nil, 2)
		store.Once(faultstore.Renew, far(2*time.Second))
		lock := adopt(t, second, ticket, nil)
		if left := time.Until(lock.Deadline()); left > 58*time.Second || left < 56*time.Second {
			t.Errorf("%v to the deadline after 2s on the way", left)
		}
		time.Sleep(time.Hour)
		noErr(t, lock.Err()) // It is renewed.
		noErr(t, lock.Extend(ctx, time.Hour))
		release(t, lock)
		successor := <-next
		if successor.Token() <= lock.Token() {
			t.Errorf("token %d after %d", successor.Token(), lock.Token())
		}
		lock = adopt(t, second, given(t, first, "b", holdfast.Options{}), &holdfast.Options{NoRenew: true, TTL: time.Minute})
		if left := time.Until(lock.Deadline()); left > time.Minute || left < 59*time.Second {
			t.Errorf("%v to the deadline", left)
		}
		noErr(t, second.ReleaseAll())
		<-next
		wantErr(t, lock.Err(), holdfast.ErrReleased)
	})
}

func TestAdoptOverAFailingStore(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		ticket := given(t, c, "a", holdfast.Options{})
		call := func() error { return failure(c.Adopt(ctx, ticket, nil)) }
		store.Set(faultstore.Renew, faultstore.LoseReply)
		wantErr(t, within(t, 10*time.Second, 20*time.Second, call), holdfast.ErrUnavailable)
		limited, cancel := context.WithTimeout(ctx, 50*ms)
		defer cancel()
		store.Set(faultstore.Renew, faultstore.Hang)
		wantErr(t, failure(c.Adopt(limited, ticket, nil)), context.DeadlineExceeded)
		store.Set(faultstore.Renew, nil)
		release(t, adopt(t, c, ticket, nil))
		free(t, c, "a")
	})
}

// An answer to Adopt that comes after its end is no proof that the hold is over.
func TestLateAnswerOfAnAdopt(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		ticket := given(t, c, "a", holdfast.Options{})
		call := func() error { return failure(c.Adopt(ctx, ticket, &holdfast.Options{TTL: 500 * ms})) }
		store.Once(faultstore.Renew, far(600*ms))
		noErr(t, call())
		noErr(t, c.ReleaseAll())
		ticket = given(t, c, "a", holdfast.Options{})
		store.Set(faultstore.Renew, far(600*ms))
		wantErr(t, within(t, 10*time.Second, 12*time.Second, call), holdfast.ErrUnavailable)
		lookup(t, c, "a")
	})
}

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

// A ticket whose hold is over, of which the store has only a place, or that has another token, is
// refused and does nothing to a successor.
func TestStaleTicket(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *holdfast.Client, ticket holdfast.Ticket){
		"released": func(t *testing.T, c *holdfast.Client, ticket holdfast.Ticket) {
			other := reprint(t, ticket, func(text map[string]any) { text["token"] = 7 })
			wantErr(t, failure(c.Adopt(t.Context(), other, nil)), holdfast.ErrNotHeld)
			release(t, adopt(t, c, ticket, nil))
		},
		"expired": func(*testing.T, *holdfast.Client, holdfast.Ticket) { time.Sleep(31 * time.Second) },
		"broken":  func(t *testing.T, c *holdfast.Client, _ holdfast.Ticket) { breakLock(t, c, "a") },
		"forgotten": func(t *testing.T, c *holdfast.Client, ticket holdfast.Ticket) {
			store := c.Store().(*faultstore.Store)
			store.Bend(forgets)
			wantErr(t, within(t, 0, 0, func() error { return failure(c.Adopt(t.Context(), ticket, nil)) }), holdfast.ErrNotHeld)
			store.Bend(func(any) {})
			breakLock(t, c, "a")
		},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			other := open(t, store.Store, nil)
			ticket := given(t, c, "a", holdfast.Options{})
			end(t, c, ticket)
			wantErr(t, failure(c.Adopt(ctx, ticket, nil)), holdfast.ErrNotHeld)
			free(t, c, "a")
			successor := acquire(t, other, "a", nil)
			wantErr(t, failure(c.Adopt(ctx, ticket, nil)), holdfast.ErrNotHeld)
			time.Sleep(time.Minute)
			noErr(t, successor.Err())
		})
	}
}

func TestNoTicket(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), &holdfast.Config{Prefix: "x:"})
		whole := given(t, c, "a", holdfast.Options{})
		with := func(field string, value any) holdfast.Ticket {
			return reprint(t, whole, func(text map[string]any) { text[field] = value })
		}
		for name, ticket := range map[string]holdfast.Ticket{
			"empty":         "",
			"other text":    "ticket",
			"other version": "holdfast2." + whole[len("holdfast1."):],
			"cut short":     whole[:len(whole)-3],
			"no name":       with("name", ""),
			"no owner":      with("owner", ""),
			"no text":       with("owner", "a\x00b\n"),
			"a long owner":  with("owner", strings.Repeat("x", 1<<20)),
			"its holder":    with("holder", "a\nb"),
			"other prefix":  with("name", "a"),
			"no more":       with("name", "x:"),
			"no TTL":        with("ttl_ns", -1),
			"no time":       with("left_ns", -1),
		} {
			if err := failure(c.Adopt(ctx, ticket, nil)); err == nil {
				t.Errorf("%s: it was adopted", name)
			} else {
				wantErr(t, err, holdfast.ErrInvalid)
			}
		}
		var log logText
		log.logger().Info("given", "ticket", whole, "no", holdfast.Ticket("x"))
		if strings.Contains(log.String(), string(whole)) || !strings.Contains(log.String(), "ticket for x:a") {
			t.Errorf("logged: %s", log.String())
		}
		err := failure(c.Adopt(ctx, reprint(t, with("ttl_ns", 1), func(text map[string]any) { text["owner"] = "secret" }), nil))
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the error shows the secret: %v", err)
		}
		if lock := adopt(t, c, whole, nil); lock.Name() != "a" {
			t.Errorf("name %q", lock.Name())
		}
	})
}

func TestTicketsNeedADetachedLockThatIsHeld(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := spyOn(memstore.New())
		c := open(t, store, nil)
		lock := acquire(t, c, "a", nil)
		wantErr(t, failure(lock.HandOver()), holdfast.ErrInvalid)
		noErr(t, lock.Err())
		release(t, lock)

		o := &holdfast.Options{Detached: true, Reentrant: true, MaxHold: time.Minute}
		lock = acquire(t, c, "a", o)
		inner := acquire(t, c, "a", o)
		wantErr(t, failure(lock.HandOver()), holdfast.ErrInvalid)
		release(t, inner)
		time.Sleep(time.Minute)
		wantErr(t, failure(lock.HandOver()), holdfast.ErrLost)
		wantErr(t, lock.Release(), holdfast.ErrLost)

		lock = acquire(t, c, "b", o)
		release(t, lock)
		wantErr(t, failure(lock.HandOver()), holdfast.ErrReleased)
		if store.acquired[0].Detached || !store.acquired[1].Detached {
			t.Errorf("of the store was requested: %+v", store.acquired)
		}
	})
}
