// Package docs holds the code of the guide to code that compiles.
package docs

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/httplock"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/ratelimit"
)

// TestGuideCodeIsCompiled: each block of Go in the guide is in one of these
// files, line for line.
func TestGuideCodeIsCompiled(t *testing.T) {
	guide, err := os.ReadFile("guide.md")
	if err != nil {
		t.Fatal(err)
	}
	var source string
	for _, file := range []string{"guide_test.go", "languages_unix_test.go", "../metrics/holdfastprom/example_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source += flat(string(text))
	}
	blocks := strings.Split(string(guide), "```go\n")[1:]
	if len(blocks) < 14 {
		t.Errorf("only %d blocks of Go in the guide", len(blocks))
	}
	for _, block := range blocks {
		block, _, closed := strings.Cut(block, "```")
		if !closed || !strings.Contains(source, flat(block)) {
			t.Errorf("not compiled:\n%s", block)
		}
	}
}

// flat takes the indentation off each line.
func flat(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

func work(context.Context) error { return nil }

// TestGuideCodeRuns runs the snippets, which have what follows at hand.
func TestGuideCodeRuns(t *testing.T) {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "memory:", nil) // or file:, redis://host, postgres://host/db, …
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	for _, snippet := range []func(context.Context, *holdfast.Client) error{
		taking, heartbeat, fencing, several, handOver, leader, periodic, jobs, limit, middleware, monitoring, examining, shutDown,
	} {
		if err := snippet(ctx, locks); err != nil {
			t.Error(err)
		}
	}
}

func taking(ctx context.Context, locks *holdfast.Client) error {
	makeReport := func(context.Context) (string, error) { return "all is well", nil }
	report, err := holdfast.DoValue(ctx, locks, "report:2026-11", nil, makeReport)
	if err != nil {
		return err
	}
	log.Print(report)
	return nil
}

func heartbeat(ctx context.Context, locks *holdfast.Client) (err error) {
	files, load := []string{"a", "b"}, func(context.Context, string) {}
	err = locks.Do(ctx, "import", nil, func(ctx context.Context) error {
		for _, file := range files {
			if err := ctx.Err(); err != nil {
				return err // the lock was lost, or the program is shutting down
			}
			load(ctx, file) // hand the context on: it ends with the lock
		}
		return nil
	})
	return err
}

func fencing(ctx context.Context, locks *holdfast.Client) error {
	write := func(context.Context, int64) error { return nil }
	lock, err := locks.Acquire(ctx, "order:42:process", nil)
	if err != nil {
		return err
	}
	defer lock.Release()
	err = write(lock.Context(), lock.Token())
	return err
}

// Readers and writers, and slots.
func ExampleOptions_shared() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()
	acquireSeveral := func() error {
		read, err := locks.Acquire(ctx, "config", &holdfast.Options{Shared: true}) // together with other readers
		if err != nil {
			return err
		}
		defer read.Release()
		slot, err := locks.Acquire(ctx, "db-connections", &holdfast.Options{Limit: 20})
		if err != nil {
			return err
		}
		return slot.Release()
	}
	if err := acquireSeveral(); err != nil {
		log.Fatal(err)
	}
	write, err := locks.Acquire(ctx, "config", nil) // alone
	if err != nil {
		log.Fatal(err)
	}
	defer write.Release()
	// Output:
}

func several(ctx context.Context, locks *holdfast.Client) error {
	transfer := func(context.Context, map[string]int64) error { return nil }
	accounts, err := locks.AcquireAll(ctx, []string{"account:7", "account:3"}, nil)
	if err != nil {
		return err
	}
	defer accounts.Release()
	err = transfer(accounts.Context(), accounts.Tokens())
	return err
}

func handOver(ctx context.Context, locks *holdfast.Client) error {
	queue := make(chan string, 1)
	give := func() error {
		lock, err := locks.TryAcquire(ctx, "report:9", &holdfast.Options{Detached: true, TTL: 5 * time.Minute})
		if err != nil {
			return err // ErrHeld: it is being made
		}
		defer lock.Release() // does nothing once the lock is handed over
		ticket, err := lock.HandOver()
		if err != nil {
			return err
		}
		queue <- string(ticket) // to the worker alone: a ticket is a secret
		return nil
	}
	if err := give(); err != nil {
		return err
	}
	lock, err := locks.Adopt(ctx, holdfast.Ticket(<-queue), nil) // with another Client, in another process
	if err != nil {
		return err // ErrNotHeld: the hold is over
	}
	defer lock.Release()
	err = work(lock.Context())
	return err
}

func leader(ctx context.Context, locks *holdfast.Client) (err error) {
	schedule := func(context.Context, int64) error { return nil }
	e := election.New(locks, "leader:scheduler", &election.Options{Logger: slog.Default()}) // which shows a store that does not answer
	err = e.Run(ctx, func(ctx context.Context, term election.Term) error {
		return schedule(ctx, term.Token) // until ctx ends
	})
	return err
}

func periodic(ctx context.Context, locks *holdfast.Client) error {
	writeReport := work
	result, err := once.Every(ctx, locks, "cron:nightly-report", 24*time.Hour, nil, writeReport)
	if err == nil && result.Verdict != once.Ran {
		log.Print("not run here: ", result)
	}
	return err
}

func jobs(ctx context.Context, locks *holdfast.Client) error {
	resize := work
	result, err := once.Do(ctx, locks, "job:resize:8f3a", &once.Options{Remember: 24 * time.Hour}, resize)
	if result.Verdict != once.Ran {
		return errors.Join(errors.New(result.String()), err)
	}
	return err
}

func limit(ctx context.Context, locks *holdfast.Client) (err error) {
	err = ratelimit.New(locks, 1, time.Minute).Take(ctx, "limit:sms:+49123")
	var limited *ratelimit.LimitError
	if errors.As(err, &limited) {
		log.Print("again in ", limited.RetryAfter)
	}
	return err
}

func middleware(_ context.Context, locks *holdfast.Client) error {
	mux, handler := http.NewServeMux(), http.NotFoundHandler()
	key := func(r *http.Request) string { return "invoice:" + r.PathValue("id") }
	mux.Handle("POST /invoices/{id}", httplock.Middleware(locks, key, nil)(handler))
	return nil
}

type metric int

func (m *metric) Observe(float64) { *m++ }
func (m *metric) Add(n int)       { *m += metric(n) }

func monitoring(ctx context.Context, _ *holdfast.Client) error {
	var waits, margins, losses metric
	config := &holdfast.Config{
		Logger: slog.Default(), // Warn: lost locks, failing requests. Debug: each lock
		Hooks: holdfast.Hooks{Event: func(_ context.Context, e holdfast.Event) {
			switch e.Kind {
			case holdfast.EventWaited:
				waits.Observe(e.Took.Seconds())
			case holdfast.EventRenewed:
				margins.Observe(e.Left.Seconds())
			case holdfast.EventLost:
				losses.Add(1)
			}
		}},
	}
	locks := holdfast.New(memstore.New(), config)
	lock, err := locks.Acquire(ctx, "job", nil)
	if err != nil {
		return err
	}
	err = lock.Extend(ctx, time.Hour)
	if margins != 1 {
		err = errors.New("the hook was not called")
	}
	return errors.Join(err, locks.Close())
}

func examining(ctx context.Context, locks *holdfast.Client) error {
	findings, err := doctor.Examine(ctx, locks.Store(), &doctor.Options{TTL: 10 * time.Second})
	if err != nil {
		return err // the store cannot be reached
	}
	for _, f := range findings {
		if f.Severity >= doctor.Warning {
			slog.Warn("locks", "finding", f.String())
		}
		if f.Severity == doctor.Failure {
			return fmt.Errorf("the store is unfit for locks: %v", f)
		}
	}
	return nil
}

// shutDown is the order of a shutdown, which examples/shutdown shows with a request under way.
func shutDown(timeout context.Context, _ *holdfast.Client) (err error) {
	server, stop, locks := &http.Server{}, func() {}, holdfast.New(memstore.New(), nil)
	err = server.Shutdown(timeout)        // 1. no new requests; those under way end, and release their locks
	stop()                                // 2. the context of elections and other background work
	err = errors.Join(err, locks.Close()) // 3. ends the contexts of what is still held, waits for Do, releases
	return err
}

// TestVirtualTime is the guide's test in virtual time.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New() // stands for the server that two processes share
		crashed, other := holdfast.New(store, nil), holdfast.New(store, nil)
		defer crashed.Close()
		defer other.Close()

		_, err := crashed.Acquire(t.Context(), "job", &holdfast.Options{NoRenew: true}) // as if it had died
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lock, err := other.Acquire(t.Context(), "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		if waited := time.Since(began).Round(time.Second); waited != holdfast.DefaultTTL {
			t.Errorf("the next one waited %v", waited)
		}
	})
}
