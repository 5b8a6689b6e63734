package storetest_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/storetest"
)

func TestTickets(t *testing.T) { storetest.Each(t, storetest.Tickets) }
