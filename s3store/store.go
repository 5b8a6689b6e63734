package s3store

import (
	"cmp"
	"fmt"
	"io/fs"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/casrecord"
)

// DefaultPrefix is put in front of all keys by default.
const DefaultPrefix = "holdfast/"

const maxPrefix = 240 // bytes: a key has 1024 at most, and that of the longest name 771

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Prefix is put in front of all keys. "" means [DefaultPrefix]. All programs that are to
	// exclude each other need the same.
	Prefix string
}

// A Store keeps locks in a bucket. See the package comment for what it promises. Its methods may be
// called from many goroutines at once.
type Store struct {
	*casrecord.Store
	objects *objects
	end     func() // of what was opened with the store
}

// New returns a store that uses a client of the caller. No request is sent. Close leaves the client
// as it is.
func New(client *s3.Client, bucket string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	prefix := cmp.Or(opts.Prefix, DefaultPrefix)
	switch {
	case client == nil || bucket == "":
		return nil, fmt.Errorf("%w: no S3 client, or no bucket", driver.ErrInvalid)
	case len(prefix) > maxPrefix || prefix == "./" || !fs.ValidPath(strings.TrimSuffix(prefix, "/")) ||
		strings.ContainsFunc(prefix, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nil, fmt.Errorf("%w: the prefix is no path as in a/b/, has a control character, or more than %d bytes", driver.ErrInvalid, maxPrefix)
	}
	o := &objects{client: client, bucket: bucket, prefix: prefix, turn: make(chan struct{}, 1)}
	return &Store{Store: casrecord.New(o, driver.Guarantees{Store: "s3", Restart: driver.FateKept, Failover: driver.FateKept}), objects: o, end: func() {}}, nil
}

// Client returns the client of the store, and the name of the bucket.
func (s *Store) Client() (client *s3.Client, bucket string) {
	return s.objects.client, s.objects.bucket
}

// Close implements [driver.Store].
func (s *Store) Close() error {
	defer s.end()
	return s.Store.Close()
}
