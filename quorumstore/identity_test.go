package quorumstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// named is a node that has an identity, which it gives after some time.
type named struct {
	driver.Store
	name string
	err  error
	wait time.Duration
}

func (n *named) Identity(context.Context) (string, error) {
	time.Sleep(n.wait)
	return n.name, n.err
}

// A quorum of which two nodes are the same grants nothing, and leaves nothing
// behind. Nodes that cannot be compared count as different ones.
func TestSameNodeTwice(t *testing.T) {
	unknown := errors.New("no permission")
	for what, c := range map[string]struct {
		nodes []named
		want  string // "" if the quorum works
	}{
		"all different":              {[]named{{name: "a"}, {name: "b"}, {name: "c"}}, ""},
		"two the same":               {[]named{{name: "a"}, {name: "b"}, {name: "a"}}, "nodes 1 and 3 "},
		"all the same":               {[]named{{name: "a"}, {name: "a"}, {name: "a"}}, " of the quorum are the same "},
		"two the same, slow to know": {[]named{{name: "a", wait: time.Millisecond}, {name: "b"}, {name: "a", wait: 2 * time.Millisecond}}, "nodes 1 and 3 "},
		"not known":                  {[]named{{}, {}, {err: unknown}}, ""},
		"known, with an error":       {[]named{{name: "a"}, {name: "a", err: unknown}, {name: "c"}}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, len(c.nodes), func(t *testing.T, servers cluster) {
				var nodes []driver.Store
				for i, conn := range servers.connect() {
					n := c.nodes[i]
					n.Store = conn
					nodes = append(nodes, &n)
				}
				s := New(nodes, &Options{CloseStores: true})
				defer s.Close()
				for range 2 {
					res, err := s.Acquire(t.Context(), request("mine"))
					if c.want == "" {
						if err != nil || !res.Granted && res.Held.Holder != "mine" {
							t.Errorf("%+v, %v, want a grant", res, err)
						}
						continue
					}
					if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("%+v, %v, want ErrInvalid about %q", res, err, c.want)
					}
					time.Sleep(time.Second) // for a grant that came later
					servers.holders(t, "", "", "")
				}
			})
		})
	}
}

// A node that hangs does not hold up the first acquisition, and is compared with
// the others when it answers.
func TestIdentityOfAHungNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, servers cluster) {
		var nodes []driver.Store
		for i, conn := range servers.connect() {
			n := &named{Store: conn, name: string(rune('a' + i))}
			if i == 2 {
				servers[i].set(servers[i].hang)
				n.name, n.wait = "a", time.Minute
			}
			nodes = append(nodes, n)
		}
		s := New(nodes, &Options{CloseStores: true})
		defer s.Close()
		req := request("mine")
		for _, want := range []time.Duration{basePause, 0} {
			if d := took(func() { grant(t, s, req) }); d != want {
				t.Errorf("an acquisition took %v, want %v", d, want)
			}
			giveBack(t, s, req)
		}
		time.Sleep(2 * time.Minute)
		if _, err := s.Acquire(t.Context(), request("mine")); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	})
}

// flaky is a node whose identity requests fail a number of times.
type flaky struct {
	driver.Store
	name  string
	err   error
	fails int
	calls int
}

func (n *flaky) Identity(context.Context) (string, error) {
	n.calls++
	if n.calls <= n.fails {
		return "", n.err
	}
	return n.name, nil
}

// A request for an identity that fails is repeated by the next acquisition, unless
// the node has no identity. A node that is found to be another one then ends the grants.
func TestIdentityAfterAFailure(t *testing.T) {
	reset := errors.New("connection reset")
	for what, c := range map[string]struct {
		third  flaky
		grants int // before twins are found
		calls  int
	}{
		"a failure":           {flaky{name: "a", err: reset, fails: 1}, 1, 2},
		"several failures":    {flaky{name: "a", err: reset, fails: 3}, 3, 4},
		"loading":             {flaky{name: "a", err: &driver.RetryError{Err: reset}, fails: 1}, 1, 2},
		"different after all": {flaky{name: "c", err: reset, fails: 1}, 6, 2},
		"it has no identity":  {flaky{name: "a", fails: 1}, 6, 1},
		"not supported":       {flaky{name: "a", err: driver.ErrUnsupported, fails: 1}, 6, 1},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, servers cluster) {
				conns := servers.connect()
				third := c.third
				third.Store = conns[2]
				s := New([]driver.Store{&named{Store: conns[0], name: "a"}, &named{Store: conns[1], name: "b"}, &third}, &Options{CloseStores: true})
				defer s.Close()
				req := request("mine")
				granted := 0
				for range 6 {
					known := c.grants < 6 && third.calls == c.calls // since a request that has ended
					res, err := s.Acquire(t.Context(), req)
					if res.Granted {
						granted++
						if known {
							t.Error("a grant although two nodes are known to be the same")
						}
					} else if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "nodes 1 and 3 ") {
						t.Errorf("%v, want ErrInvalid about nodes 1 and 3", err)
					}
					giveBack(t, s, req)
					synctest.Wait() // for the identity requests, which no grant waits for whose majority is the others
				}
				if most := min(c.grants+1, 6); granted < c.grants || granted > most || third.calls != c.calls {
					t.Errorf("%d grants, %d identity requests, want %d or %d, and %d", granted, third.calls, c.grants, most, c.calls)
				}
			})
		})
	}
}
