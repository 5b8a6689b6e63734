package quorumstore_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
	_ "github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// An unfencedStore says that it gives no tokens.
type unfencedStore struct{ driver.Store }

func (s unfencedStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.Fencing = false
	return g
}

func init() {
	driver.Register("test", func(_ context.Context, u *url.URL) (driver.Store, error) {
		switch u.Host {
		case "broken":
			return nil, driver.ErrInvalid
		case "unfenced":
			return unfencedStore{memstore.New()}, nil
		}
		return memstore.New(), nil
	})
}

func TestURLThatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, url, want string }{
		{"no node", "quorum:", "one node at least"},
		{"a host", "quorum://host?node=test://a", "want quorum:"},
		{"unknown parameter", "quorum:?node=test://a&nodes=test://b", "unknown parameter nodes"},
		{"negative timeout", "quorum:?node=test://a&timeout=-1s", "no negative timeout"},
		{"no such store", quorumstore.URL("test://a", "nosuch://user:sesame@b"), `node 2: invalid argument: no store for scheme "nosuch"`},
		{"a node that is refused", quorumstore.URL("test://a", "test://user:sesame@broken"), "node 2"},
		{"a node twice", quorumstore.URL("test://a", "test://b", "test://a"), "node 3: invalid argument: another node has the same URL"},
		{"a node twice, in other words", quorumstore.URL("test://user:sesame@a/x", "test://user:sesame@A/x/"), "node 2: invalid argument: another node has the same URL"},
		{"tokens and none", quorumstore.URL("test://a", "test://unfenced"), "with and without fencing tokens"},
		{"advisory locks", quorumstore.URL("postgres+advisory://a/db?tokens=app.tokens"), "node 1: not supported by this store: no node is etcd, a quorum itself, or of advisory locks"},
		{"malformed node", quorumstore.URL("test://a", "test://user:sesame@b:port"), "node 2: invalid argument: malformed URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := holdfast.Open(context.Background(), tt.url, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("error %v, want one with %q and without the password", err, tt.want)
			}
		})
	}
}
