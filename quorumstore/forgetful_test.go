package quorumstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// The limit of every quorum: a hold need be on no more than a majority, so that
// one node which forgets it admits another owner. The tokens show the difference.
func TestForgetfulNode(t *testing.T) { synctest.Test(t, testForgetfulNode) }

func testForgetfulNode(t *testing.T) {
	nodes := []*faultstore.Store{faultstore.Wrap(memstore.New()), faultstore.Wrap(memstore.New()), faultstore.Wrap(memstore.New())}
	s := New([]driver.Store{nodes[0], nodes[1], nodes[2]}, nil)
	defer s.Close()
	acquire := func(owner string) driver.Result {
		t.Helper()
		time.Sleep(time.Millisecond) // What is under way ends.
		res, err := s.Acquire(t.Context(), driver.Request{Name: "name", Owner: request(owner).Owner, Holder: owner, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}

	nodes[2].Set(faultstore.Acquire, faultstore.Refuse) // It is down for a while.
	first := acquire("A")
	synctest.Wait()
	nodes[2].Set(faultstore.Acquire, nil)
	if res := acquire("B"); !first.Granted || res.Granted {
		t.Fatalf("two of three nodes granted A the lock: %+v; then B: %+v", first, res)
	}

	if _, err := nodes[1].Break(t.Context(), "name", 0); err != nil {
		t.Fatal(err)
	}
	if res := acquire("B"); !res.Granted || res.Token <= first.Token {
		t.Errorf("a node has forgotten A's hold of token %d: %+v, want B granted a greater one", first.Token, res)
	}
}
