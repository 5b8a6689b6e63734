package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	// The stores that --store can name.
	_ "github.com/holdfast-go/holdfast/filestore"
	_ "github.com/holdfast-go/holdfast/memstore"
	_ "github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/quorumstore"
	_ "github.com/holdfast-go/holdfast/redisstore"
)

// What a client library has to say is in the errors that it returns.
func init() { logging.Disable() }

// stores is the value of --store: the URL of a store, or of each node of a
// quorum. The first that is given replaces the default.
type stores struct {
	urls  []string
	given bool
}

// URL returns the URL of the one store that the program works with.
func (s *stores) URL() string {
	if len(s.urls) == 1 {
		return s.urls[0]
	}
	return quorumstore.URL(s.urls...)
}

// open opens the store, which other processes must be able to share.
func (s *stores) open(ctx context.Context, config *holdfast.Config) (*holdfast.Client, error) {
	client, err := holdfast.Open(ctx, s.URL(), config)
	if err == nil && client.Guarantees().Scope == driver.ScopeProcess {
		_ = client.Close() // nothing was done with it
		return nil, fmt.Errorf("%w: the locks of this store exclude nobody outside of this process", holdfast.ErrUnsupported)
	}
	return client, err
}

func (s *stores) Set(url string) error {
	if !s.given {
		s.urls, s.given = nil, true
	}
	s.urls = append(s.urls, url)
	return nil
}

// SetList takes the value of the environment variable: URLs with spaces between
// them.
func (s *stores) SetList(urls string) error {
	for url := range strings.FieldsSeq(urls) {
		_ = s.Set(url) // never fails
	}
	return nil
}

func (s *stores) String() string { return strings.Join(s.urls, " ") }

func (s *stores) Type() string { return "URL" }
