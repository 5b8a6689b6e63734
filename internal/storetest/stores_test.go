package storetest_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/storetest"
)

func TestEventPairs(t *testing.T) { storetest.EachOfAll(t, storetest.EventPairs) }

func TestTickets(t *testing.T) { storetest.Each(t, storetest.Tickets) }
