// Package queuetest runs the histories of testdata/histories.txt against a store that keeps the
// queue of a name, to show that it keeps the rule of package oldqueue. The file describes the
// meaning of its lines.
package queuetest

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

//go:embed testdata/histories.txt
var histories string

// A Store is one name in a store under test, in which nothing has happened yet.
type Store interface {
	Acquire(Request) Reply
	Renew(owner string, token int64, ttl time.Duration) Outcome
	Release(owner string, keep time.Duration) bool

	// Break returns how many holds and keeps it ended.
	Break(token int64) int

	// Notices returns the notices since the last call, in the order in which they were sent.
	Notices() []Notice

	// Now is the store's clock in µs since 1970, as tokens are made of it.
	Now() int64

	// Advance lets time pass.
	Advance(time.Duration)
}

// A Request is a request to acquire the name.
type Request struct {
	Owner      string
	Limit      int
	Floor      int64
	Tokens     int
	TTL, Queue time.Duration
	Claim      bool
}

// A Reply is the reply to a Request. Queued and First are of a place. Held is the owner of the
// oldest hold if the request was not granted, "keep" if that is a keep, and Left its time, 0 if
// that is unknown.
type Reply struct {
	Token         int64 // 0 if it was not granted
	Tokens        int
	Queued, First bool
	Invalid       bool
	Held          string
	Left          time.Duration
}

// An Outcome is that of a renewal.
type Outcome string

// The outcomes of a renewal.
const (
	Renewed Outcome = "renewed"
	Queued  Outcome = "queued"
	Lost    Outcome = "lost"
)

// A Notice reports that a place was admitted, or, without a token, that its owner should claim.
type Notice struct {
	Owner  string
	Token  int64
	Tokens int
}

// A History is what happens to one name.
type History struct {
	Title string
	Steps []Step
}

// A Step is one line of a history: at its time a verb has a result.
type Step struct {
	Line  int
	At    time.Duration
	Verb  string
	Owner string
	Args  map[string]string
	Want  string
	Text  string
}

// Histories returns the histories of the file.
func Histories() ([]History, error) {
	var all []History
	for i, line := range strings.Split(histories, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		title, isTitle := strings.CutPrefix(line, "history: ")
		switch {
		case line == "":
		case isTitle:
			all = append(all, History{Title: title})
		case len(all) == 0:
			return nil, fmt.Errorf("line %d: no history has begun", i+1)
		default:
			step, err := parseStep(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			step.Line = i + 1
			h := &all[len(all)-1]
			if n := len(h.Steps); n > 0 && h.Steps[n-1].At > step.At {
				return nil, fmt.Errorf("line %d: time runs back", i+1)
			}
			h.Steps = append(h.Steps, step)
		}
	}
	return all, nil
}

var argsOf = map[string][]string{
	"acquire": {"ttl", "queue", "claim", "shared", "limit", "tokens", "floor"},
	"renew":   {"ttl", "token"},
	"release": {"keep"},
	"break":   {"token"},
}

func parseStep(line string) (Step, error) {
	call, want, ok := strings.Cut(line, "->")
	words := strings.Fields(call)
	if !ok || len(words) < 2 {
		return Step{}, fmt.Errorf("want time, verb, owner, arguments -> result")
	}
	at, err := time.ParseDuration(words[0])
	if err != nil {
		return Step{}, err
	}
	s := Step{At: at, Verb: words[1], Args: map[string]string{}, Want: strings.Join(strings.Fields(want), " "), Text: line}
	words = words[2:]
	if s.Verb != "break" {
		if len(words) == 0 {
			return Step{}, fmt.Errorf("no owner")
		}
		s.Owner, words = words[0], words[1:]
	}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if !slices.Contains(argsOf[s.Verb], key) {
			return Step{}, fmt.Errorf("%s has no argument %q", s.Verb, key)
		}
		s.Args[key] = value
	}
	return s, nil
}

// Run runs each history against a store of its own. Times are multiplied by scale, which lets a
// store with a real clock be fast.
func Run(t *testing.T, scale float64, open func(testing.TB) Store) {
	all, err := Histories()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		t.Run(strings.ReplaceAll(h.Title, " ", "-"), func(t *testing.T) {
			if err := Play(h, scale, open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Play runs one history and returns the first difference.
func Play(h History, scale float64, store Store) error {
	p := player{scale: scale, store: store, began: store.Now(), floors: map[string]int64{}}
	var at time.Duration
	for _, s := range h.Steps {
		store.Advance(p.scaled(s.At - at))
		at = s.At
		got, err := p.do(s)
		if err != nil {
			return fmt.Errorf("histories.txt:%d: %s: %w", s.Line, s.Text, err)
		}
		if got != s.Want {
			return fmt.Errorf("histories.txt:%d: %s\n got: %s", s.Line, s.Text, got)
		}
		p.late = max(p.late, p.lateness(s))
	}
	return nil
}

// A player has the tokens of a history. Label n of the file is the n-th hold that was granted.
type player struct {
	scale  float64
	store  Store
	began  int64            // Store.Now at the first step
	first  []int64          // token of each hold
	counts []int            // of their tokens
	late   time.Duration    // the greatest lateness of the steps before
	floors map[string]int64 // those that were requested, by owner
	err    error
}

func (p *player) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * p.scale)
}

// lateness returns for how long the step has been due. On a busy machine that may be a second.
func (p *player) lateness(s Step) time.Duration {
	return max(time.Duration(p.store.Now()-p.began)*time.Microsecond-p.scaled(s.At), 0)
}

// behind returns what stands after a result that was not granted. The time left is less by the
// lateness of the step, and more by that of the step that has granted the hold.
func (p *player) behind(s Step, result string, r Reply) string {
	text := func(left time.Duration) string {
		return fmt.Sprintf(" behind %s %v", r.Held, time.Duration(float64(left)/p.scale).Round(time.Second))
	}
	want, _, _ := strings.Cut(s.Want, ";") // without the notices
	least, most := r.Left-p.late, r.Left+p.lateness(s)
	for left := least; left < most; left += p.scaled(time.Second) {
		if result+text(left) == want {
			return text(left)
		}
	}
	if result+text(most) == want {
		return text(most)
	}
	return text(r.Left)
}

func (p *player) do(s Step) (string, error) {
	p.err = nil
	result := ""
	switch s.Verb {
	case "acquire":
		limit := p.number(s, "limit")
		if _, shared := s.Args["shared"]; shared {
			limit = -1
		}
		_, claim := s.Args["claim"]
		if s.Args["floor"] != "" {
			p.floors[s.Owner] = p.store.Now() + p.duration(s, "floor").Microseconds()
		}
		r := p.store.Acquire(Request{
			Owner: s.Owner, Limit: limit, Floor: p.floors[s.Owner],
			Tokens: p.number(s, "tokens"), TTL: p.duration(s, "ttl"), Queue: p.duration(s, "queue"), Claim: claim,
		})
		switch {
		case r.Invalid:
			result = "invalid"
		case r.Token != 0:
			result = "granted " + p.label(s.Owner, r.Token, r.Tokens)
		case r.First:
			result = "queued first"
		case r.Queued:
			result = "queued"
		default:
			result = "refused"
		}
		if r.Held != "" && r.Token == 0 {
			result += p.behind(s, result, r)
		}
	case "renew":
		result = string(p.store.Renew(s.Owner, p.token(s), p.duration(s, "ttl")))
	case "release":
		result = strconv.FormatBool(p.store.Release(s.Owner, p.duration(s, "keep")))
	case "break":
		result = fmt.Sprint(p.store.Break(p.token(s)))
	default:
		return "", fmt.Errorf("no verb %q", s.Verb)
	}
	for _, n := range p.store.Notices() {
		if n.Token == 0 {
			result += "; " + n.Owner + " should claim"
		} else {
			result += "; " + n.Owner + " granted " + p.label(n.Owner, n.Token, n.Tokens)
		}
	}
	return result, p.err
}

// label returns the label of a hold, and how many tokens it has if that is not one. A hold that is
// new must be above all tokens before it.
func (p *player) label(owner string, first int64, count int) string {
	i := slices.Index(p.first, first)
	if i < 0 {
		if n := len(p.first); n > 0 && first < p.first[n-1]+int64(p.counts[n-1]) {
			p.err = fmt.Errorf("token %d after %d tokens from %d on", first, p.counts[n-1], p.first[n-1])
		}
		if first < p.floors[owner] {
			p.err = fmt.Errorf("token %d is below the floor %d", first, p.floors[owner])
		}
		i = len(p.first)
		p.first, p.counts = append(p.first, first), append(p.counts, count)
	}
	if p.counts[i] != count {
		p.err = fmt.Errorf("%d tokens, which were %d when they were granted", count, p.counts[i])
	}
	if count == 1 {
		return strconv.Itoa(i + 1)
	}
	return fmt.Sprintf("%d tokens=%d", i+1, count)
}

// token returns the token that an argument means: a label, and how many above its first token.
func (p *player) token(s Step) int64 {
	if s.Args["token"] == "" {
		return 0
	}
	text, above, _ := strings.Cut(s.Args["token"], "+")
	label, err := strconv.Atoi(text)
	if err != nil || label < 1 || label > len(p.first) {
		p.err = fmt.Errorf("no token %q", text)
		return 0
	}
	more := 0
	if above != "" {
		if more, err = strconv.Atoi(above); err != nil {
			p.err = err
		}
	}
	return p.first[label-1] + int64(more)
}

func (p *player) number(s Step, arg string) int {
	if s.Args[arg] == "" {
		return 0
	}
	n, err := strconv.Atoi(s.Args[arg])
	if err != nil {
		p.err = err
	}
	return n
}

func (p *player) duration(s Step, arg string) time.Duration {
	if s.Args[arg] == "" {
		return 0
	}
	d, err := time.ParseDuration(s.Args[arg])
	if err != nil {
		p.err = err
	}
	if d > driver.MaxLead {
		return d
	}
	return p.scaled(d)
}
