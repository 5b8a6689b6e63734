package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// wrapErr wraps the error of a request. It marks every error that is certain to have had no effect.
func (s *Store) wrapErr(err error) error {
	if err == nil {
		return nil
	}
	var reply redis.Error
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.As(err, &op) && op.Op == "dial", errors.As(err, &cert): // It has certainly not been sent.
		return driver.NotApplied(err)
	case errors.As(err, &reply):
		return s.explainReply(reply)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the server has closed the connection, as one does that wants TLS of a client without it, or that has its max number of clients: %w", err)
	}
	return err
}

// explainReply explains an error reply of the server, after which nothing was changed: a lock of
// which something was has an answer of its own (see lua/tail.lua).
func (s *Store) explainReply(reply error) error {
	text := errorText(reply.Error())
	is := func(codes ...string) bool {
		return slices.ContainsFunc(codes, func(code string) bool { return strings.HasPrefix(text, code) })
	}
	switch {
	case is("CROSSSLOT "), !s.cluster && is("MOVED ", "ASK "):
		return driver.NotApplied(hint(reply, "this server is a node of a cluster: use a cluster client (redis+cluster://)"))
	case is("READONLY ") && s.sentinel:
		return &driver.RetryError{Err: hint(reply, "the Sentinels have not made another master yet")}
	case is("READONLY "):
		return driver.NotApplied(hint(reply, "this server is a replica: connect to its master, by Sentinel if it moves"))
	case is("NOPERM ", "ACL failure", "The user executing the script can't "):
		return driver.NotApplied(hint(reply, "the user must be allowed EVALSHA, EVAL and the commands in the scripts, on all keys of the prefix, and WAIT with MinReplicas"))
	case is("NOAUTH ", "WRONGPASS "), strings.Contains(text, "unauthenticated"):
		return driver.NotApplied(hint(reply, "the server wants another user or password than the client has"))
	case is("unknown command", "Unknown command") && s.sentinel && strings.Contains(strings.ToLower(text), "sentinel"):
		return fmt.Errorf("%w: this server is no Sentinel, whose port is mostly 26379 (%s)", driver.ErrInvalid, firstLine(reply.Error()))
	case is("unknown command", "Unknown command"):
		return fmt.Errorf("%w: the server does not run Lua scripts (%s)", driver.ErrUnsupported, firstLine(reply.Error()))
	case is(transientErrors...):
		return &driver.RetryError{Err: errors.New(firstLine(reply.Error()))}
	}
	return driver.NotApplied(reply)
}

// errorText returns the text of an error reply from its code on, or without the code if that is
// ERR. The rest of a reply may contain names that users have chosen. Redis 6 puts the script in
// front of the error of a command in it.
func errorText(text string) string {
	return strings.TrimPrefix(inScript().ReplaceAllString(text, ""), "ERR ")
}

var inScript = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(ERR )?(Error running script \(call to \w+\): )?(@?user_script:[ \d]+: )+-?`)
})

// transientErrors are the error codes of a server that will serve the request later: it is reading
// its data, gives a slot away, has lost its master or its replicas, runs a long script of another
// client, or has no memory, disk or connection to spare.
var transientErrors = []string{
	"LOADING ", "TRYAGAIN ", "CLUSTERDOWN ", "MASTERDOWN ", "NOREPLICAS ", "BUSY ", "MOVED ", "ASK ", "max number of clients",
	"OOM ", "MISCONF ",
}

// hint returns the error of an error reply with a hint on what to do about it.
func hint(reply error, hint string) error {
	return errors.New(strings.TrimSuffix(firstLine(reply.Error()), ".") + ": " + hint)
}

func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, ", with args") // which may be secret
	if end := strings.LastIndex(text, " script: "); end >= 0 && strings.Contains(text[end:], ", on @user_script") {
		return text[:end] // The rest is of no use to people.
	}
	return text
}
