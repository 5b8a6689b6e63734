package quorumstore

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// Break with a token reports true only if what is left of the hold is no majority, false only if
// that is so without it, and an error if the nodes that reply do not show which of the two it is.
func TestBreakToken(t *testing.T) {
	const mine, other, free, hung = "mine", "other", "", "hung"
	for what, test := range map[string]struct {
		nodes  []string // what each node has
		broken bool
		fails  bool
	}{
		"on all":                          {nodes: []string{mine, mine, mine}, broken: true},
		"on a majority":                   {nodes: []string{mine, free, mine}, broken: true},
		"on a majority, one hung":         {nodes: []string{mine, hung, mine}, broken: true},
		"another on all":                  {nodes: []string{other, other, other}},
		"another on a majority, one hung": {nodes: []string{other, hung, other}},
		"free on a majority":              {nodes: []string{free, mine, free}},
		"one of each, one hung":           {nodes: []string{mine, other, hung}, fails: true},
		"a majority hung":                 {nodes: []string{mine, hung, hung}, fails: true},
		"two of four, the others free":    {nodes: []string{mine, free, mine, free}, broken: true},
		"one of four, one hung":           {nodes: []string{free, mine, free, hung}},
		"one of four, two hung":           {nodes: []string{hung, mine, free, hung}, fails: true},
		"two of five, one hung":           {nodes: []string{mine, other, mine, other, hung}, fails: true},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, len(test.nodes), func(t *testing.T, c cluster) {
				s := c.client(t)
				token := time.Now().UnixMicro() + 1000
				for i, holder := range test.nodes {
					req := request(holder)
					switch holder {
					case free:
						continue
					case hung:
						c[i].set(c[i].hang)
						continue
					case mine:
						req.Floor = token
					}
					if res, err := c[i].store.Acquire(t.Context(), req); err != nil || !res.Granted || (res.Token == token) != (holder == mine) {
						t.Fatalf("Acquire at node %d: %+v, %v", i, res, err)
					}
				}
				began := time.Now()
				records, err := s.Break(t.Context(), name, token)
				if d := time.Since(began); d > 0 && !slices.Contains(test.nodes, hung) {
					t.Errorf("Break took %v", d)
				}
				broken := len(records) > 0
				var votes *majorityError
				if broken != test.broken || errors.As(err, &votes) != test.fails {
					t.Errorf("Break: %+v, %v", records, err)
				}
				if broken && (records[0].Token != token || records[0].Holder != mine) {
					t.Errorf("Break reports %v, and %+v", broken, records)
				}
				for i, holder := range test.nodes {
					if holder == mine {
						holder = free
					}
					if got := c[i].holder(); holder != hung && got != holder {
						t.Errorf("node %d has %q after Break, want %q", i, got, holder)
					}
				}
			})
		})
	}
}
