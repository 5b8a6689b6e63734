package main

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A picture is what there was when we looked.
type picture struct {
	at    time.Time
	locks []holdfast.Record
	errs  []error
}

func (w *watchCommand) look(ctx context.Context, client *holdfast.Client, last *picture) *picture {
	locks, errs := list(ctx, client, w.prefix)
	p := &picture{time.Now(), locks, errs}
	if len(errs) > 0 {
		p.complete(ctx, client, last)
	}
	return p
}

// useless reports whether the picture shows nothing but errors, and not only of
// single records.
func (p *picture) useless() bool {
	for _, err := range p.errs {
		if !errors.Is(err, holdfast.ErrCorrupt) {
			return len(p.locks) == 0
		}
	}
	return false
}

// complete looks for the locks that were there before and are missing from a
// listing that had errors: that they are missing does not say that they are free.
// One that cannot be looked at is taken to be as it was.
func (p *picture) complete(ctx context.Context, client *holdfast.Client, last *picture) {
	seen := p.byName()
	var err error
	for _, rec := range last.locks {
		if _, ok := seen[rec.Name]; ok {
			continue
		}
		if !errors.Is(err, holdfast.ErrUnavailable) { // else the next would fail as well, and take its time
			var now holdfast.Record
			if now, err = client.Lookup(ctx, rec.Name); err == nil {
				rec = now
			}
		}
		if !errors.Is(err, holdfast.ErrNotHeld) {
			p.locks = append(p.locks, rec)
		}
	}
	sortByName(p.locks)
}

func (p *picture) byName() map[string]holdfast.Record {
	locks := make(map[string]holdfast.Record, len(p.locks))
	for _, rec := range p.locks {
		locks[rec.Name] = rec
	}
	return locks
}
