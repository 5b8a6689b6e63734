package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// fault wraps the error of a request. It says of every error that
// is certain to have had no effect that this is so.
func (s *Store) fault(err error) error {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: the Redis client has been closed", driver.ErrNotApplied)
	case unsent(err):
		return notApplied{err}
	case errors.As(err, &reply):
		return s.refused(reply)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the server has closed the connection, as one does that wants TLS of a client without it: %w", err)
	}
	return err
}

// unsent reports whether the request has certainly not been sent.
func unsent(err error) bool {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &cert) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// notApplied is an error after which nothing was changed.
type notApplied struct{ error }

func (e notApplied) Unwrap() []error { return []error{e.error, driver.ErrNotApplied} }

// refused explains an error that the server has answered. The scripts write
// only when nothing can fail any more, so that nothing was changed.
func (s *Store) refused(reply redis.Error) error {
	text := reply.Error()
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case has("HOLDFAST"), has("WRONGTYPE"):
		return fmt.Errorf("%w: of the keys %q and %q one is not the number or sorted set of tokens that it should be: DEL lets it begin anew",
			driver.ErrCorrupt, s.counterKey(""), s.aheadKey(""))
	case has("CROSSSLOT"):
		return explained{"this server is a node of a cluster: use a cluster client (redis+cluster://)", reply}
	case has("READONLY"):
		return explained{"this server is a replica: connect to its master, by Sentinel if it moves", reply}
	case has("NOAUTH"), has("WRONGPASS"), has("unauthenticated"):
		return explained{"the server wants another user or password than the client has", reply}
	case has("NOPERM"):
		return explained{"the user must be allowed EVALSHA, EVAL and the commands in the scripts, on all keys of the prefix", reply}
	case has("unknown command"):
		return fmt.Errorf("%w: the server does not run Lua scripts (%s)", driver.ErrUnsupported, firstLine(text))
	case has("OOM "):
		return explained{"the server has no memory left", reply}
	}
	return notApplied{reply}
}

// explained is an error reply with what to do about it.
type explained struct {
	advice string
	reply  error
}

func (e explained) Error() string {
	return firstLine(e.reply.Error()) + ": " + e.advice
}

func (e explained) Unwrap() []error { return []error{e.reply, driver.ErrNotApplied} }

func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, ", with args") // which may be secret
	return text
}
