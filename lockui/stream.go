package lockui

import (
	"net/http"
	"time"
)

const (
	writeTimeout = 10 * time.Second // of one message to a viewer
	beatInterval = 5 * time.Second  // between messages at the latest
)

// serveStream keeps a view up to date, with server-sent events. A viewer that is slower than the
// updates skips some: it gets those that are kept, or the whole view.
func (p *page) serveStream(w http.ResponseWriter, r *http.Request) {
	next, ok := p.updatesOf(r)
	if !ok {
		http.Error(w, "There is no such view.", http.StatusNotFound)
		return
	}
	leave, ok := p.join()
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many pages are open.", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server may have one for whole requests
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	for first := true; ; first = false {
		messages, updated := next()
		if first { // What it missed has the time of then.
			messages = append(messages, beatNow())
		}
		if len(messages) > 0 {
			beat.Reset(beatInterval)
		}
		for {
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // an error of it comes with Flush
			for _, m := range messages {
				if _, err := w.Write(m); err != nil {
					return
				}
			}
			if err := control.Flush(); err != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-beat.C:
				messages = [][]byte{beatNow()}
				continue
			case <-updated:
			}
			break
		}
	}
}

// beatNow returns the message that shows that the page is there, with the present time.
func beatNow() []byte { return message("beat", time.Now().UnixMilli()) }

// updatesOf returns the function that returns the next messages of the view that a request names,
// and a channel that is closed when there may be more.
func (p *page) updatesOf(r *http.Request) (next func() (messages [][]byte, updated <-chan struct{}), ok bool) {
	var content func(now time.Time) fragment
	switch r.FormValue("view") {
	case "locks":
		state := r.FormValue("from")
		return func() (messages [][]byte, updated <-chan struct{}) {
			messages, state, updated = p.updatesSince(state)
			return messages, updated
		}, true
	case "lock":
		s, err := p.storeOf(r)
		if err != nil {
			return nil, false
		}
		content = func(now time.Time) fragment { return p.lockHTML(s, r.FormValue("name"), now) }
	case "stores":
		content = p.storesHTML
	case "events":
		content = p.eventsHTML
	default:
		return nil, false
	}
	var last fragment
	return func() (messages [][]byte, updated <-chan struct{}) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if now := content(time.Time{}); now != last {
			last = now
			messages = append(messages, message("main", map[string]any{"now": time.Now().UnixMilli(), "html": now}))
		}
		return messages, p.updated
	}, true
}
