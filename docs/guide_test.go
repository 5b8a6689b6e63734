// Package docs holds the code of the guide to code that compiles.
package docs

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/httplock"
	_ "github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/ratelimit"
)

// TestGuideCodeIsCompiled: each block of Go in the guide is in this file, line
// for line.
func TestGuideCodeIsCompiled(t *testing.T) {
	guide, err := os.ReadFile("guide.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("guide_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(guide), "```go\n")[1:]
	if len(blocks) < 8 {
		t.Errorf("only %d blocks of Go in the guide", len(blocks))
	}
	for _, block := range blocks {
		block, _, closed := strings.Cut(block, "```")
		if !closed || !strings.Contains(flat(string(source)), flat(block)) {
			t.Errorf("not in guide_test.go:\n%s", block)
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
	locks, err := holdfast.Open(ctx, "memory:", nil) // or file:, redis://host, …
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	for _, snippet := range []func(context.Context, *holdfast.Client) error{heartbeat, fencing, leader, periodic, jobs, limit, middleware} {
		if err := snippet(ctx, locks); err != nil {
			t.Error(err)
		}
	}
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

func leader(ctx context.Context, locks *holdfast.Client) (err error) {
	schedule := func(context.Context, int64) error { return nil }
	e := election.New(locks, "leader:scheduler", nil)
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
	mux.Handle("POST /invoices/{id}", httplock.New(locks, key, nil)(handler))
	return nil
}
