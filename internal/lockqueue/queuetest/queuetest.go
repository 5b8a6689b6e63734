// Package queuetest plays the histories of testdata/histories.txt against a store that keeps the
// queue of a name, to show that it keeps the rule of package lockqueue. The file describes the
// meaning of its lines.
package queuetest

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

//go:embed testdata/histories.txt
var histories string

// name is that of the lock of a history.
const name = "history"

// Run plays each history in a test of its own. Open returns an empty store, and how long a second
// of the history is. Bubble runs a test in virtual time, or is nil. A store that sends its notices
// after its replies needs virtual time.
func Run(t *testing.T, bubble func(*testing.T, func(*testing.T)), second time.Duration, open func(testing.TB) driver.Notifier) {
	for block := range strings.SplitSeq(histories, "\nhistory: ") {
		title, lines, _ := strings.Cut(block, "\n")
		if strings.HasPrefix(title, "#") {
			continue
		}
		t.Run(strings.ReplaceAll(title, " ", "-"), func(t *testing.T) {
			if bubble == nil {
				bubble = func(t *testing.T, f func(*testing.T)) { f(t) }
			}
			bubble(t, func(t *testing.T) {
				for late := true; late; {
					p := player{ctx: t.Context(), store: open(t), second: second}
					stop := p.store.Notify(p.notify)
					p.began = time.Now()
					late = false
					for line := range strings.SplitSeq(lines, "\n") {
						err := p.play(line)
						if late = p.late; late {
							break // A machine that could not keep the time has shown nothing.
						}
						if err != nil {
							t.Errorf("%s: %v", strings.TrimSpace(line), err)
							break
						}
					}
					stop()
				}
			})
		})
	}
}

// A player plays one history.
type player struct {
	ctx    context.Context
	store  driver.Notifier
	second time.Duration
	began  time.Time
	owners []string // of the entries, in the order in which they were made
	last   int64    // the greatest token that there is
	late   bool     // a call has returned a third of a second of the history after its time, or later

	mu      sync.Mutex
	tokens  []int64 // of the entries; this goroutine alone writes it
	notices []string
}

func (p *player) notify(_, owner string, token int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := owner + " looks"
	if token != 0 {
		text = fmt.Sprint(owner, " holds ", slices.Index(p.tokens, token)+1)
	}
	p.notices = append(p.notices, text)
}

// play plays a line, and returns what is wrong with the result.
func (p *player) play(line string) error {
	line, _, _ = strings.Cut(line, "#")
	call, want, ok := strings.Cut(line, "->")
	if !ok {
		return nil
	}
	words := strings.Fields(call)
	at := p.duration(words[0])
	time.Sleep(time.Until(p.began.Add(at)))
	owner, args := "", map[string]string{}
	for _, word := range words[2:] {
		if key, value, ok := strings.Cut(word, "="); ok {
			args[key] = value
		} else {
			owner = word
		}
	}
	got, err := p.call(words[1], owner, args)
	p.late = time.Since(p.began) > at+p.second/3
	if err != nil {
		return err
	}
	if s, ok := p.store.(*settled); ok {
		s.wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	got = strings.Join(append([]string{got}, p.notices...), "; ")
	p.notices = nil
	if want := strings.Join(strings.Fields(want), " "); got != want {
		return errors.New("got " + got)
	}
	return nil
}

// duration and number return what an argument means, and 0 for none. What is wrong with the file
// ends the test.
func (p *player) duration(text string) time.Duration {
	d, err := time.ParseDuration(cmp.Or(text, "0"))
	if err != nil {
		panic(err)
	}
	return time.Duration(d.Seconds() * float64(p.second))
}

func number(text string) int {
	if text == "shared" {
		return driver.Shared
	}
	n, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil {
		panic(err)
	}
	return n
}

func (p *player) call(verb, owner string, args map[string]string) (string, error) {
	ttl, token := p.duration(args["ttl"]), int64(0)
	if label, above, _ := strings.Cut(args["token"], "+"); label != "" {
		token = p.tokens[number(label)-1] + int64(number(above))
	}
	switch verb {
	case "acquire":
		req := driver.Request{
			Name: name, Owner: owner, Holder: owner, TTL: ttl, Place: p.duration(args["place"]),
			Limit: number(args["limit"]), Tokens: number(args["tokens"]),
		}
		if floor, err := time.ParseDuration(args["floor"]); err == nil {
			req.Floor = time.Now().Add(floor).UnixMicro()
		}
		return p.acquire(req)
	case "renew":
		got, err := p.store.Renew(p.ctx, []driver.RenewRequest{{Name: name, Owner: owner, Token: token, TTL: ttl}})
		switch {
		case err != nil:
			return "", err
		case got[0].State == driver.Lost:
			return "lost", nil
		}
		return fmt.Sprint(got[0].State, " ", slices.Index(p.tokens, got[0].Token)+1), nil
	case "release":
		ended, err := p.store.Release(p.ctx, driver.ReleaseRequest{Name: name, Owner: owner, Keep: p.duration(args["keep"])})
		return fmt.Sprint(ended), err
	case "break":
		ended, err := p.store.Break(p.ctx, name, token)
		return names(ended), err
	case "lookup":
		records, err := p.store.Lookup(p.ctx, name)
		if len(records) == 0 {
			return "none", err
		}
		return fmt.Sprintf("%s, %d waiting", names(records), records[0].Waiting), err
	}
	return "", fmt.Errorf("no verb %q", verb)
}

func (p *player) acquire(req driver.Request) (string, error) {
	res, err := p.store.Acquire(p.ctx, req)
	switch {
	case errors.Is(err, driver.ErrInvalid):
		return "invalid", nil
	case err != nil && slices.Contains(p.owners, req.Owner):
		return "again", nil
	case err != nil:
		return "", err
	}
	text := "refused"
	if res.Granted || res.Waiting {
		if res.Token <= p.last || res.Token < req.Floor {
			return "", fmt.Errorf("token %d after %d, floor %d", res.Token, p.last, req.Floor)
		}
		p.mu.Lock()
		p.tokens, p.owners = append(p.tokens, res.Token), append(p.owners, req.Owner)
		p.mu.Unlock()
		p.last = res.Token + int64(max(req.Tokens, 1)) - 1
		text = fmt.Sprint("waiting ", len(p.tokens))
	}
	if res.Granted {
		return fmt.Sprint("granted ", len(p.tokens)), nil
	}
	left := time.Duration(float64(res.Held.Remaining) / float64(p.second) * float64(time.Second))
	return fmt.Sprintf("%s behind %s %v", text, names([]driver.Record{res.Held}), left.Round(time.Second)), nil
}

// names returns the holders of records.
func names(records []driver.Record) string {
	var holders []string
	for _, rec := range records {
		if rec.Kept {
			rec.Holder = "keep"
		}
		holders = append(holders, rec.Holder)
	}
	return cmp.Or(strings.Join(holders, " "), "none")
}
