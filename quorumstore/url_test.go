package quorumstore_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// opened counts the stores of the scheme "counted" that are open.
var opened = map[*countedStore]bool{}

type countedStore struct{ driver.Store }

func (s *countedStore) Close() error {
	delete(opened, s)
	return s.Store.Close()
}

// An unfencedStore says that it gives no tokens.
type unfencedStore struct{ driver.Store }

func (s unfencedStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.Fencing = false
	return g
}

func init() {
	driver.Register("counted", func(_ context.Context, u *url.URL) (driver.Store, error) {
		if u.Host == "broken" {
			return nil, driver.ErrInvalid
		}
		s := &countedStore{memstore.New()}
		if u.Host == "unfenced" {
			s.Store = unfencedStore{s.Store}
		}
		opened[s] = true
		return s, nil
	})
}

func TestURLThatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, url, want string }{
		{"no node", "quorum:", "one node at least"},
		{"a host", "quorum://host?node=counted://a", "want quorum:"},
		{"unknown parameter", "quorum:?node=counted://a&nodes=counted://b", "unknown parameter nodes"},
		{"negative timeout", "quorum:?node=counted://a&timeout=-1s", "no negative timeout"},
		{"no such store", quorumstore.URL("counted://a", "nosuch://user:sesame@b"), `node 2: invalid argument: no store for scheme "nosuch"`},
		{"a node that is refused", quorumstore.URL("counted://a", "counted://user:sesame@broken"), "node 2"},
		{"a node twice", quorumstore.URL("counted://a", "counted://b", "counted://a"), "node 3: invalid argument: another node has the same URL"},
		{"a node twice, in other words", quorumstore.URL("counted://user:sesame@a/x", "counted://user:sesame@A/x/"), "node 2: invalid argument: another node has the same URL"},
		{"tokens and none", quorumstore.URL("counted://a", "counted://unfenced"), "with and without fencing tokens"},
		{"malformed node", quorumstore.URL("counted://a", "counted://user:sesame@b:port"), "node 2: invalid argument: malformed URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := holdfast.Open(context.Background(), tt.url, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("error %v, want one with %q and without the password", err, tt.want)
			}
			if len(opened) != 0 {
				t.Errorf("%d stores are left open", len(opened))
			}
		})
	}
}
