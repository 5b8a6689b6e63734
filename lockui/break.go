package lockui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

const breakTimeout = 10 * time.Second

func breakURL(s *store, name string, token int64) string {
	return fmt.Sprintf("break?store=%d&name=%s&token=%d", s.index, url.QueryEscape(name), token)
}

func lockURL(s *store, name string) string {
	return fmt.Sprintf("lock?store=%d&name=%s", s.index, url.QueryEscape(name))
}

// A breakRequest is the hold that a viewer wants to end.
type breakRequest struct {
	store *store
	name  string
	token int64
}

// breakRequest returns the hold that a request names, or answers the request and returns nil.
func (p *page) breakRequest(w http.ResponseWriter, r *http.Request) *breakRequest {
	if !p.AllowBreak {
		http.Error(w, "This page is read-only.", http.StatusForbidden)
		return nil
	}
	query := r.URL.Query() // and not the body, which forms may change
	s, err := p.storeOf(r)
	token, tokenErr := strconv.ParseInt(query.Get("token"), 10, 64)
	if err != nil || tokenErr != nil || token < 1 || query.Get("name") == "" {
		http.Error(w, "A break needs a store, a name and a token.", http.StatusBadRequest)
		return nil
	}
	return &breakRequest{s, query.Get("name"), token}
}

// confirmBreak asks, and names the holder.
func (p *page) confirmBreak(w http.ResponseWriter, r *http.Request) {
	b := p.breakRequest(w, r)
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), breakTimeout)
	defer cancel()
	rec, err := b.store.client.Lookup(ctx, b.name)
	if errors.Is(err, holdfast.ErrInvalid) {
		p.writeBreakResult(w, http.StatusBadRequest, b, err.Error())
		return
	}
	if err != nil && !errors.Is(err, holdfast.ErrNotHeld) {
		p.writeBreakResult(w, http.StatusServiceUnavailable, b, "The store does not answer, so that its holder is not known.")
		return
	}
	holds := lockview.EachHold(rec)
	i := slices.IndexFunc(holds, func(hold holdfast.Record) bool { return hold.Token == b.token })
	if i < 0 {
		p.writeBreakResult(w, http.StatusConflict, b, "This hold is over, and there is nothing to break.")
		return
	}
	var m markup
	now := time.Now()
	since, until := timesOf(holds[i], now)
	m.add("<h1>Break the lock “<span class=\"lock-name\">%s</span>”?</h1>\n<dl class=\"card hold\">\n", b.name)
	addFacts(&m, holds[i], since, until, 0, now)
	m.add("</dl>\n<p>Its holder is not asked, and works on until its next renewal, after a third of its TTL at most. Only a resource " +
		"that compares tokens is safe meanwhile.</p>\n<p>The break ends this hold alone: if the lock has changed hands by then, nothing happens.</p>\n")
	m.add("<form method=\"post\" action=\"%s\" class=\"choice\"><button class=\"danger\">Break it</button> <a class=\"button\" href=\"%s\">Leave it</a></form>\n",
		breakURL(b.store, b.name, b.token), lockURL(b.store, b.name))
	p.write(w, http.StatusOK, document{title: "Break " + b.name, view: "break", content: m.fragment()})
}

// breakHold ends a hold, if it is still the one with the token.
func (p *page) breakHold(w http.ResponseWriter, r *http.Request) {
	b := p.breakRequest(w, r)
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakTimeout) // a break is not left half-way
	defer cancel()
	attrs := append([]any{slog.String("store", b.store.name), slog.String("name", b.name), slog.Int64("token", b.token)}, p.origin(r)...)
	if err := p.record(ctx, "page of locks: breaking", attrs...); err != nil {
		p.writeBreakResult(w, http.StatusServiceUnavailable, b, "Nothing was broken: the log of breaks cannot be written.")
		return
	}
	rec, err := b.store.client.BreakToken(ctx, b.name, b.token)
	if err != nil {
		_ = p.record(ctx, "page of locks: break failed", append(attrs, slog.Any("error", err))...) // the first line is there
	} else {
		_ = p.record(ctx, "page of locks: lock broken", append(attrs, slog.String("holder", rec.Holder))...)
	}
	switch {
	case err == nil:
		p.refreshAfter(r.Context(), b.store)
		redirect(w, fmt.Sprintf("%s&broken=%d", lockURL(b.store, b.name), b.token))
	case errors.Is(err, holdfast.ErrNotHeld):
		p.writeBreakResult(w, http.StatusConflict, b, "Nothing was broken: this hold was over already.")
	case errors.Is(err, holdfast.ErrInvalid):
		p.writeBreakResult(w, http.StatusBadRequest, b, err.Error())
	case errors.Is(err, holdfast.ErrUnavailable):
		p.writeBreakResult(w, http.StatusServiceUnavailable, b, "The store has not answered. The hold may be broken or not; it is safe to try again.")
	default:
		p.writeBreakResult(w, http.StatusNotImplemented, b, err.Error())
	}
}

// record writes a line to the log, and returns the error of the handler, which a [slog.Logger]
// drops.
func (p *page) record(ctx context.Context, message string, attrs ...any) error {
	handler := p.logger().Handler()
	if !handler.Enabled(ctx, slog.LevelWarn) {
		return nil
	}
	line := slog.NewRecord(time.Now(), slog.LevelWarn, message, 0)
	line.Add(attrs...)
	return handler.Handle(ctx, line)
}

func (p *page) writeBreakResult(w http.ResponseWriter, status int, b *breakRequest, text string) {
	var m markup
	m.add("<h1 class=\"lock-name\">%s</h1>\n<p class=\"notice\" role=\"alert\">%s</p>\n<p><a href=\"%s\">Back to the lock</a></p>\n",
		b.name, text, lockURL(b.store, b.name))
	p.write(w, status, document{title: b.name, view: "break", content: m.fragment()})
}
