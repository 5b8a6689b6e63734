package anystore

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/recipetest"
)

// TestSets goes on for as many half seconds as HOLDFAST_ROUNDS says.
func TestSets(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("HOLDFAST_ROUNDS"))
	if err != nil {
		rounds = 1
	}
	recipetest.Each(t, func(t *testing.T, s *recipetest.Store) {
		n := Sets(t, time.Duration(rounds)*time.Second/2, s.Replicas(t, 3)...)
		if n == 0 {
			t.Error("nobody had a set")
		}
		t.Logf("%d sets", n)
	})
}

func TestTickets(t *testing.T) {
	recipetest.Each(t, func(t *testing.T, s *recipetest.Store) {
		Tickets(t, func() *holdfast.Client { return s.Open(t, nil) })
	})
}
