package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	readBound = 10 * time.Second // of each request of a listing, which has no deadline
	maxValue  = 8 << 20          // bytes of an object: a record of tens of thousands of entries
)

var (
	errChanged = errors.New("s3: the object has changed")
	errUnfit   = fmt.Errorf("%w: the server ignores If-None-Match and If-Match of a PUT, so that two clients would hold a lock at once",
		driver.ErrUnsupported)
)

// get returns an object and its ETag, or nil and "" if there is none.
func (s *Store) get(ctx context.Context, key string) (value []byte, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key}, once)
	if code(err) == "NoSuchKey" {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", explain("GET", err)
	}
	defer out.Body.Close()
	value, err = io.ReadAll(io.LimitReader(out.Body, maxValue)) // What is longer is not a record.
	if err == nil && aws.ToString(out.ETag) == "" {
		err = errors.New("s3: the server has answered without an ETag")
	}
	return value, aws.ToString(out.ETag), err
}

// put writes an object if it has this ETag still, or if there is none for tag "", and returns its
// new one. Otherwise it returns errChanged. After any other error the write may have happened, or
// may still happen, unless the error matches ErrNotApplied. The request is sent once: one that was
// sent again could be refused because the first has succeeded.
func (s *Store) put(ctx context.Context, key string, value []byte, tag string) (string, error) {
	in := &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(value), ContentType: aws.String("application/json"),
	}
	if tag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &tag
	}
	out, err := s.client.PutObject(ctx, in, once)
	switch code(err) {
	case "PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey":
		return "", errChanged
	}
	if err != nil {
		return "", explain("PUT", err)
	}
	return aws.ToString(out.ETag), nil
}

// check writes an object that no name has twice, under conditions that hold at most for the first
// time that anybody does so, and returns an error unless the server refuses both. It does so until
// the server has once shown that it is fit.
func (s *Store) check(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	key, value := s.prefix+"~probe", []byte("a probe of package s3store")
	_, err := s.put(ctx, key, value, "")
	if err == nil { // It may be the first.
		_, err = s.put(ctx, key, value, "")
	}
	if errors.Is(err, errChanged) {
		_, err = s.put(ctx, key, value, `"`+strings.Repeat("0", 32)+`"`)
	}
	switch {
	case errors.Is(err, errChanged):
		s.checked.Store(true)
		return nil
	case err == nil:
		return errUnfit
	case code(err) == "NotImplemented":
		return fmt.Errorf("%w: the server has no conditional PUT: %w", driver.ErrUnsupported, err)
	}
	return err
}

// once are the options of a request of the client: no retries, and no checksums beside the
// signature, which servers other than Amazon's may refuse.
func once(opts *s3.Options) {
	opts.Retryer = aws.NopRetryer{}
	opts.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	opts.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
}

// explain returns the error of a request, without the parts that help nobody.
func explain(verb string, err error) error {
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
		case status < http.StatusInternalServerError && api.ErrorCode() != "RequestTimeout",
			status == http.StatusNotImplemented:
			return driver.NotApplied(refusal)
		}
		return refusal
	case errors.As(err, &dial) && dial.Op == "dial":
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

// keyPart is how many bytes of a key may follow each other: "~/" is behind each part of that
// length, since servers that keep objects as files have short names.
const keyPart = 200

// escape percent-encodes all bytes but letters, digits, "-" and "_": so no proxy shortens a key,
// and no server takes it for a path.
var escape = strings.NewReplacer("+", "%20", ".", "%2E", "~", "%7E")

// encode returns the key of a name, and of the beginning of a name the beginning of its key.
func encode(name string) (key string) {
	rest := escape.Replace(url.QueryEscape(name))
	for len(rest) > keyPart {
		key, rest = key+rest[:keyPart]+"~/", rest[keyPart:]
	}
	return key + rest
}

// decode returns the name of a key, unless the key is not one of this package.
func decode(key string) (name string, ok bool) {
	name, err := url.PathUnescape(strings.ReplaceAll(key, "~/", ""))
	return name, err == nil && name != "" && encode(name) == key
}
