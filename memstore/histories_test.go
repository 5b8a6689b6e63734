package memstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue/queuetest"
)

// The store keeps the rule of the queue.
func TestHistories(t *testing.T) {
	queuetest.Run(t, synctest.Test, time.Second, func(testing.TB) driver.Notifier { return New() })
}
