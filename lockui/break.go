package lockui

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
)

const breakTimeout = 10 * time.Second

// breakHold ends a hold, if it is still the one with the token.
func (p *page) breakHold(w http.ResponseWriter, r *http.Request) {
	if !p.AllowBreak {
		http.Error(w, "This page is read-only.", http.StatusForbidden)
		return
	}
	index, err := strconv.Atoi(r.PostFormValue("store"))
	name := r.PostFormValue("name")
	token, tokenErr := strconv.ParseInt(r.PostFormValue("token"), 10, 64)
	if err != nil || index < 0 || index >= len(p.stores) || name == "" || tokenErr != nil || token < 1 {
		http.Error(w, "A break needs a store, a name and a token.", http.StatusBadRequest)
		return
	}
	s := p.stores[index]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakTimeout) // a break is not left half-way
	defer cancel()
	attrs := append([]any{slog.String("store", s.name), slog.String("name", name), slog.Int64("token", token)}, p.origin(r)...)
	if err := p.record(ctx, "page of locks: breaking", attrs...); err != nil {
		http.Error(w, "Nothing was broken: the log of breaks cannot be written.", http.StatusServiceUnavailable)
		return
	}
	broken, err := s.client.Break(ctx, name, token)
	if err == nil {
		_ = p.record(ctx, "page of locks: lock broken", append(attrs, slog.String("holder", broken[0].Holder))...)
		s.mu.Lock()
		s.next = time.Time{} // The viewer asks at once, and sees what is left.
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = p.record(ctx, "page of locks: break failed", append(attrs, slog.Any("error", err))...) // the first line is there
	switch {
	case errors.Is(err, holdfast.ErrNotHeld):
		http.Error(w, "Nothing was broken: this hold was over already.", http.StatusConflict)
	case errors.Is(err, holdfast.ErrUnavailable):
		http.Error(w, "The store has not answered. The hold may be broken or not; it is safe to try again.", http.StatusServiceUnavailable)
	default: // The name is none, or the store cannot break a hold.
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// record writes a line to the log, and returns the error of the handler, which a [slog.Logger]
// drops.
func (p *page) record(ctx context.Context, message string, attrs ...any) error {
	handler := p.Logger.Handler()
	if !handler.Enabled(ctx, slog.LevelWarn) {
		return nil
	}
	line := slog.NewRecord(time.Now(), slog.LevelWarn, message, 0)
	line.Add(attrs...)
	return handler.Handle(ctx, line)
}
