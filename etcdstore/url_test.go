//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Nothing secret is in an error of a URL.
func TestURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"etcd://h1,h2:2379/some/prefix": "some/prefix/",
		"etcds://h1":                    DefaultPrefix,
	} {
		s, err := openText(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if strings.TrimSuffix(s.lockKeys, "lock/") != want || s.Close() != nil {
			t.Errorf("%s: the prefix is %q, want %q", text, strings.TrimSuffix(s.lockKeys, "lock/"), want)
		}
	}
	for _, text := range []string{"etcd:", "etcd://u@h", "etcd://:secret@h", "etcd://h?cert_file=secret", "etcds://h?ca_file=/nowhere", "etcds://h?cert_file=x"} {
		if _, err := openText(t, text); !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// An address of another server, or with the wrong scheme, has an error with the cause once.
func TestWrongAddresses(t *testing.T) {
	t.Parallel()
	plain, redis := servers.StartEtcd(t), servers.StartRedis(t)
	for text, want := range map[string]string{
		"etcd://" + redis.Addr:  "reading server preface",
		"etcds://" + plain.Addr: "authentication handshake failed",
		"etcd://127.0.0.1:1":    "connection refused",
	} {
		s, err := openText(t, text)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		_, err = s.Acquire(ctx, request("owner", time.Minute))
		cancel()
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s: %v, want %q once", text, err, want)
		}
		must(t, s.Close())
	}
}
