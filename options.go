package holdfast

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultTTL is the TTL of a lock if neither Options nor Config set one.
const DefaultTTL = 30 * time.Second

// Options define how a lock is taken and held. The zero value, and nil, are good defaults.
type Options struct {
	// TTL is how long the store keeps the lock without a renewal: the time after which a crashed or
	// unreachable holder is replaced. It does not limit how long the work takes, since locks are
	// renewed. From driver.MinTTL (10 ms) to driver.MaxTTL (a year); 0 means Config.TTL. Below a
	// second, a busy machine or network may lose the lock. A lock that was waited for in the queue
	// of a store has a shorter lease until its first renewal, 5 s at most (30 s in files), unless
	// NoRenew, Detached or MaxHold is set.
	TTL time.Duration

	// Wait bounds how long Acquire waits for the lock; 0 means as long as its context allows.
	Wait time.Duration

	// MaxHold ends the hold that long after the acquisition: renewal stops, and the lock is lost
	// with the reason ErrMaxHold. It is driver.MinTTL at least; 0 means no limit.
	MaxHold time.Duration

	// MaxAttempts ends Acquire after the store has answered that many times that the lock is held;
	// 0 means no limit. Such an Acquire has no place in the queue of the store. Between attempts it
	// waits for a pause of Config.Backoff, or less if the holder's time ends or the store notifies.
	MaxAttempts int

	// Metadata is shown to everybody with access to the store: at most driver.MaxMetadataEntries
	// entries and driver.MaxMetadata bytes in all. Do not put secrets into it. nil means
	// Config.Metadata.
	Metadata map[string]string

	// NoRenew turns automatic renewal off: the holder calls Lock.Extend in time.
	NoRenew bool

	// Reentrant lets an Acquire by the same Client join a hold that it has already, if that was
	// acquired with Reentrant too: it returns a Lock of its own with the same token, and sends
	// nothing. The lock is released when the last of them is. The options of the first stay in
	// force. Goroutines that share a hold do not exclude each other. It excludes Shared and Limit.
	Reentrant bool

	// Detached makes a hold that outlives the process, also on stores that free the locks of a
	// process that has ended: it ends by Release, Break or its TTL alone. Only such a lock can be
	// handed to another process: see [Lock.HandOver].
	Detached bool

	// Shared takes the lock together with others that set Shared or Limit: the reading side of a
	// read-write lock. A plain Acquire of the same name is the writing side. On a store with a
	// queue (Guarantees().Queue) readers do not starve it: it waits for those before it alone.
	// Every holder has a lease and a token of its own, within a Client, too. A shared lock cannot
	// be turned into a plain one, since two that try would wait for each other.
	Shared bool

	// Limit takes the lock together with others, this one included Limit at most: a semaphore. It
	// holds as soon as no more than Limit-1 are before it, and these tolerate it. So programs can
	// be restarted with another Limit one by one. 0 and 1 mean an exclusive lock. A store without
	// Guarantees().Limits refuses any other.
	Limit int
}

// Config defines how a Client works. The zero value, and nil, are good defaults.
type Config struct {
	// Holder is the public name under which the Client's locks are shown to others, at most
	// driver.MaxName bytes. It proves nothing and need not be unique. The default is
	// host/pid/random.
	Holder string

	// Prefix is put before every name on its way to the store, and taken off on the way back, so
	// that programs can share a store.
	Prefix string

	TTL      time.Duration     // of locks whose Options have none; 0 means DefaultTTL
	Metadata map[string]string // of locks whose Options have none (nil)
	Backoff  Backoff           // between attempts where the store does not notify waiters, or fails

	// RequestTimeout bounds every request to the store; a later answer does not count. 0 means 3 s.
	// Renewals, and requests for a lock, have a shorter bound if the TTL requires it.
	RequestTimeout time.Duration

	// MaxOutage is how long a waiting Acquire keeps trying while the store does not answer; 0 means
	// 10 s. A store that refuses the very first attempt is not waited for. A server that answers
	// that it can serve later ([driver.RetryError]) is waited for until Wait or the deadline of the
	// context is over; without either, for MaxOutage beyond the time that it announced.
	MaxOutage time.Duration

	// LocalTurn is for how long goroutines of this Client may pass a lock on among themselves
	// before other Clients can get it, counted from the grant of the store. A lock that is passed
	// on has a new token, and its release sends no request. Other Clients wait for LocalTurn and
	// one hold at most. 0 means 10 ms; a negative value turns it off.
	//
	// Locks with Shared, Limit, MaxHold, NoRenew, Reentrant or Detached are not passed on, nor to
	// callers with another TTL or other Metadata, nor are locks of a store without a queue, or with
	// a token for each grant alone (Guarantees().Tokens).
	LocalTurn time.Duration

	// Logger gets lost locks and failing requests at level Warn; acquisitions, releases, and
	// acquisitions that begin to wait at level Debug. nil logs nothing.
	Logger *slog.Logger

	Hooks Hooks // for metrics and traces
}

// limit returns the Limit of the request: 0 for an exclusive lock.
func (o *Options) limit() int {
	switch {
	case o.Shared:
		return driver.Shared
	case o.Limit == 1:
		return 0
	}
	return o.Limit
}

// validate returns an error for options that are out of bounds.
func (o *Options) validate() error {
	size, text := 0, true
	for key, value := range o.Metadata {
		size += len(key) + len(value)
		text = text && key != "" && printable(key) && printable(value)
	}
	switch {
	case o.Wait < 0 || o.MaxHold < 0 || o.MaxAttempts < 0:
		return fmt.Errorf("%w: Wait, MaxHold and MaxAttempts cannot be negative", ErrInvalid)
	case o.MaxHold > 0 && o.MaxHold < driver.MinTTL:
		return fmt.Errorf("%w: MaxHold %v is below %v%s", ErrInvalid, o.MaxHold, driver.MinTTL, unitHint(o.MaxHold))
	case o.Limit < 0 || o.Limit >= driver.Shared:
		return fmt.Errorf("%w: Limit %d is not between 0 and %d", ErrInvalid, o.Limit, driver.Shared-1)
	case o.Shared && o.Limit > 0:
		return fmt.Errorf("%w: Shared and Limit exclude each other", ErrInvalid)
	case o.limit() != 0 && o.Reentrant:
		return fmt.Errorf("%w: a shared or limited lock cannot be Reentrant", ErrInvalid)
	case len(o.Metadata) > driver.MaxMetadataEntries:
		return fmt.Errorf("%w: %d entries of metadata, at most %d fit", ErrInvalid, len(o.Metadata), driver.MaxMetadataEntries)
	case !text:
		return fmt.Errorf("%w: metadata must be UTF-8 text without control characters, under keys that are not empty", ErrInvalid)
	case size > driver.MaxMetadata:
		return fmt.Errorf("%w: %d bytes of metadata, at most %d fit", ErrInvalid, size, driver.MaxMetadata)
	}
	return checkTTL(o.TTL)
}

// validate returns an error for a Config that is out of bounds.
func (c *Config) validate(holder string) error {
	defaults := Options{TTL: cmp.Or(c.TTL, DefaultTTL), Metadata: c.Metadata}
	switch b := c.Backoff; {
	case !printable(c.Prefix):
		return fmt.Errorf("%w: prefix is not UTF-8 text without control characters", ErrInvalid)
	case c.RequestTimeout < 0 || c.MaxOutage < 0 || b.Min < 0 || b.Max < 0:
		return fmt.Errorf("%w: RequestTimeout, MaxOutage and the times of Backoff cannot be negative", ErrInvalid)
	case b.Max > 0 && b.Min > b.Max:
		return fmt.Errorf("%w: Backoff.Min %v is above Backoff.Max %v", ErrInvalid, b.Min, b.Max)
	}
	if err := defaults.validate(); err != nil {
		return fmt.Errorf("Config: %w", err)
	}
	return checkText("holder", holder)
}

func checkTTL(ttl time.Duration) error {
	if ttl < driver.MinTTL || ttl > driver.MaxTTL {
		return fmt.Errorf("%w: TTL %v is not between %v and %v%s", ErrInvalid, ttl, driver.MinTTL, driver.MaxTTL, unitHint(ttl))
	}
	return nil
}

// unitHint returns what to write for a duration that looks like a number of seconds, or "".
func unitHint(d time.Duration) string {
	if d <= 0 || d >= time.Microsecond {
		return ""
	}
	return fmt.Sprintf("; a number alone is nanoseconds: write %d*time.Second", int64(d))
}

// checkText returns an error for a text that cannot be a name or a holder.
func checkText(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("%w: %s is empty", ErrInvalid, what)
	case len(text) > driver.MaxName:
		return fmt.Errorf("%w: %s of %d bytes, at most %d fit", ErrInvalid, what, len(text), driver.MaxName)
	case !printable(text):
		return fmt.Errorf("%w: %s is not UTF-8 text without control characters", ErrInvalid, what)
	}
	return nil
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
