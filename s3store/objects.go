package s3store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/casrecord"
)

const (
	requestBound = 10 * time.Second // of a request whose context has no deadline
	maxValue     = 8 << 20          // bytes of an object: a record of tens of thousands of entries
)

var errNoTag = errors.New("s3: the server has answered without an ETag")

// objects are the records in a bucket. They implement [casrecord.Objects].
type objects struct {
	client  *s3.Client
	bucket  string
	prefix  string
	checked atomic.Bool   // the server has refused writes whose conditions did not hold
	turn    chan struct{} // has room for the caller that checks that
}

// Get returns an object, and its ETag as its version.
func (o *objects) Get(ctx context.Context, name string) ([]byte, string, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	send := &sender{}
	out, err := o.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &o.bucket, Key: aws.String(o.prefix + encode(name))}, send.once)
	if code(err) == "NoSuchKey" {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", send.explain("GET", err)
	}
	defer out.Body.Close()
	value, err := io.ReadAll(io.LimitReader(out.Body, maxValue+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("s3: GET: %w", err)
	case len(value) > maxValue:
		return nil, "", fmt.Errorf("%w: the object %s%s has more than %d bytes", driver.ErrCorrupt, o.prefix, encode(name), maxValue)
	case aws.ToString(out.ETag) == "":
		return nil, "", errNoTag
	}
	return value, *out.ETag, nil
}

// Put writes an object if its version is still this one, or if there is none for version "". The
// request is sent once: one that was sent again could be refused because the first has succeeded.
func (o *objects) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	if err := o.check(ctx); err != nil {
		return "", driver.NotApplied(err)
	}
	return o.put(ctx, o.prefix+encode(name), value, version)
}

func (o *objects) put(ctx context.Context, key string, value []byte, version string) (string, error) {
	in := &s3.PutObjectInput{Bucket: &o.bucket, Key: &key, Body: bytes.NewReader(value), ContentType: aws.String("application/json")}
	if version == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &version
	}
	send := &sender{}
	out, err := o.client.PutObject(ctx, in, send.once)
	switch code(err) {
	case "PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey":
		return "", casrecord.ErrChanged
	}
	switch {
	case err != nil:
		return "", send.explain("PUT", err)
	case aws.ToString(out.ETag) == "":
		return "", errNoTag
	}
	return *out.ETag, nil
}

// List yields the names that begin with prefix. It ends after an error.
func (o *objects) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &o.bucket, Prefix: aws.String(o.prefix + encode(prefix))}
		for {
			limited, cancel := bound(ctx)
			send := &sender{}
			out, err := o.client.ListObjectsV2(limited, in, send.once)
			cancel()
			if err != nil {
				yield("", send.explain("LIST", err))
				return
			}
			for _, object := range out.Contents {
				name, ok := decode(strings.TrimPrefix(aws.ToString(object.Key), o.prefix))
				if ok && !yield(name, nil) {
					return
				}
			}
			if in.ContinuationToken = out.NextContinuationToken; in.ContinuationToken == nil {
				return
			}
		}
	}
}

// errUnfit means that the server has done a write whose condition did not hold.
var errUnfit = fmt.Errorf("%w: the server ignores If-None-Match and If-Match of a PUT, so that two clients would hold a lock at once", driver.ErrUnsupported)

// check writes the object with the name of a probe twice, under conditions that hold at most for
// the first time that anybody does so, and returns an error unless both are refused. It does so
// until the server has shown once that it is fit.
func (o *objects) check(ctx context.Context) error {
	if o.checked.Load() {
		return nil
	}
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if o.checked.Load() {
		return nil
	}
	key, stale := o.prefix+probe, `"`+strings.Repeat("0", 32)+`"`
	_, err := o.put(ctx, key, []byte("a probe of package s3store"), "")
	if err == nil { // It may be the first.
		_, err = o.put(ctx, key, []byte("a probe of package s3store, again"), "")
	}
	if errors.Is(err, casrecord.ErrChanged) {
		_, err = o.put(ctx, key, []byte("a probe of package s3store, with a stale tag"), stale)
	}
	switch {
	case errors.Is(err, casrecord.ErrChanged):
		o.checked.Store(true)
		return nil
	case err == nil:
		return errUnfit
	case code(err) == "NotImplemented":
		return fmt.Errorf("%w: the server has no conditional PUT: %w", driver.ErrUnsupported, err)
	}
	return err
}

// Check writes an object of the Store's own in ways that a server must refuse, also by many writers
// at once. Its error matches driver.ErrUnsupported if the server does not refuse them.
func (s *Store) Check(ctx context.Context) error {
	o := s.objects
	o.checked.Store(false)
	if err := o.check(ctx); err != nil {
		return err
	}
	send := &sender{}
	key := o.prefix + probe
	head, err := o.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &o.bucket, Key: &key}, send.once)
	if err != nil {
		return send.explain("HEAD", err)
	}
	errs := make([]error, 16)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { _, errs[i] = o.put(ctx, key, []byte(rand.Text()), aws.ToString(head.ETag)) })
	}
	group.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, casrecord.ErrChanged) {
			return err
		}
	}
	if won > 1 {
		o.checked.Store(false)
		return fmt.Errorf("%w: of %d writers at once %d have won", errUnfit, len(errs), won)
	}
	return nil
}

// bound gives a context without a deadline one.
func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestBound)
}

// A sender sends one request, and knows whether it was sent.
type sender struct {
	client s3.HTTPClient
	sent   bool
}

// once are the options of a request of the client: no retries, and no checksums beside the
// signature, which servers other than Amazon's may refuse.
func (s *sender) once(opts *s3.Options) {
	s.client, opts.HTTPClient = opts.HTTPClient, s
	opts.Retryer = aws.NopRetryer{}
	opts.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	opts.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
}

func (s *sender) Do(req *http.Request) (*http.Response, error) {
	s.sent = true
	return s.client.Do(req)
}

// explain returns the error of a request, without the parts that help nobody.
func (s *sender) explain(verb string, err error) error {
	var reply *awshttp.ResponseError
	var api smithy.APIError
	var dial *net.OpError
	switch {
	case errors.As(err, &reply) && errors.As(err, &api):
		status := reply.HTTPStatusCode()
		refusal := fmt.Errorf("s3: %s: %w (status %d)", verb, api, status)
		switch {
		case api.ErrorCode() == "SlowDown", status == http.StatusTooManyRequests:
			after, _ := time.ParseDuration(reply.Response.Header.Get("Retry-After") + "s")
			return &driver.RetryError{Err: refusal, After: max(after, 0)}
		case status < http.StatusInternalServerError && api.ErrorCode() != "RequestTimeout", status == http.StatusNotImplemented:
			return driver.NotApplied(refusal)
		}
		return refusal
	case errors.As(err, &dial) && dial.Op == "dial", !s.sent:
		return driver.NotApplied(fmt.Errorf("s3: %s: %w", verb, err))
	}
	return fmt.Errorf("s3: %s: %w", verb, err)
}

// code returns the code of an error of the server.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
