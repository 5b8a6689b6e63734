//go:build unix

package storetest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
	_ "github.com/holdfast-go/holdfast/redisstore" // redis:
)

func init() {
	serverURL = func(tb testing.TB) string { return "redis://" + servers.StartRedis(tb).Addr }
}
