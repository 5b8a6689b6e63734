package command

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"

	// The stores that --store can name.
	"github.com/holdfast-go/holdfast/filestore"
	_ "github.com/holdfast-go/holdfast/memstore"
	_ "github.com/holdfast-go/holdfast/pgstore"
	_ "github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/quorumstore"
	_ "github.com/holdfast-go/holdfast/redisstore"
)

// The errors of the Redis client contain all that it would log.
func init() { logging.Disable() }

// stores is the value of --store: the URL of a store, or of each node of a quorum.
type stores []string

// checkURLs refuses a URL that is empty: with the default instead of it each host would lock alone.
// It says how to install the program that has a store in etcd or S3.
func (s stores) checkURLs() error {
	if slices.ContainsFunc(s, func(url string) bool { return strings.TrimSpace(url) == "" }) {
		return usageError(errors.New("the URL of the store is empty, in --store or HOLDFAST_STORE: is a variable not set?"),
			"a URL such as redis://host:6379, or file: for locks of this host alone")
	}
	if missing := s.missing(); missing != "" {
		program := extensionPrefix + missing
		return usageError(errors.New("this program is without the store in "+missing+", and finds no "+program+" beside it or on the PATH"),
			"go install github.com/holdfast-go/holdfast/"+missing+"store/cmd/"+program+"@latest")
	}
	return nil
}

// URL returns the URL of the one store that the program works with.
func (s stores) URL() string {
	if len(s) == 1 {
		return s[0]
	}
	return quorumstore.URL(s...)
}

// openClient opens the store, which other processes must be able to share.
func (s stores) openClient(ctx context.Context, config *holdfast.Config) (*holdfast.Client, error) {
	if err := s.checkURLs(); err != nil {
		return nil, err
	}
	client, err := holdfast.Open(ctx, s.URL(), config)
	if err == nil && client.Guarantees().InProcess {
		_ = client.Close() // nothing was done with it
		return nil, usageError(errors.New("the memory store is for one process: its locks exclude nobody else"), "--store file:")
	}
	return client, err
}

// publicURL returns what of the URL of a store is no secret.
func publicURL(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "store"
	}
	if u.Scheme == "quorum" {
		var nodes []string
		for _, node := range u.Query()["node"] {
			nodes = append(nodes, publicURL(node))
		}
		return "quorum of " + strings.Join(nodes, ", ")
	}
	public := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.Scheme == "file" {
		public.Opaque = u.Opaque // a path that is relative
		if dir, err := filestore.DefaultDir(); err == nil && u.Opaque == "" && u.Path == "" {
			public.Path = filepath.ToSlash(dir)
		}
	}
	return public.String()
}
