//go:build unix

package storetest_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/storetest"
)

func TestEndings(t *testing.T) { storetest.Each(t, storetest.Endings) }

func TestOutageIsNeverHeld(t *testing.T) { storetest.Each(t, storetest.Outage) }
