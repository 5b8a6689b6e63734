package holdfast

import (
	"fmt"
	"log/slog"
	"maps"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultTTL is the TTL of a lock for which no other was asked.
const DefaultTTL = 30 * time.Second

// Options say how a lock is taken and held. The zero value, and nil, mean the
// defaults of the Client's Config.
type Options struct {
	// TTL is how long the store keeps the lock for a holder that it does not
	// hear from: the time after which a crashed or unreachable holder is
	// replaced. It has nothing to do with how long the work takes, since locks
	// are renewed. From driver.MinTTL (10 ms) to driver.MaxTTL (a year);
	// 0 means DefaultTTL. Below a second, a busy machine or network may lose
	// the lock.
	TTL time.Duration

	// Wait bounds how long Acquire waits for the lock; 0 means as long as its
	// context allows. TryAcquire does not use it.
	Wait time.Duration

	// MinHold keeps the name taken until that long after the acquisition, even
	// if the lock is released sooner: work then runs at most once in that time,
	// among replicas whose clocks differ too. At most driver.MaxTTL.
	MinHold time.Duration

	// MaxHold ends the hold that long after the acquisition: renewal stops,
	// and the lock is lost with the reason ErrMaxHold. 0 means no limit.
	MaxHold time.Duration

	// Metadata is shown to everybody who looks the lock up: at most
	// driver.MaxMetadataEntries entries and driver.MaxMetadata bytes in all.
	// It is no place for secrets.
	Metadata map[string]string

	// NoRenew leaves it to the holder to call Lock.Extend in time.
	NoRenew bool

	// Reentrant lets an Acquire by the same Client join a hold that it has
	// already, if that was acquired with Reentrant too: it prolongs the hold
	// and returns a Lock of its own with the same token. The store lets go when
	// the last of them is released. The options of the first stay in force.
	// Goroutines that share a hold do not exclude each other.
	Reentrant bool

	// Detached makes a hold that outlives the process, on stores too that free
	// the locks of a process that has ended: it ends by Release, Break or its
	// TTL alone. Only such a lock can be handed to another process: see
	// [Lock.HandOver]. A store without Guarantees().Detached refuses it.
	Detached bool

	// MaxAttempts ends Acquire after the store has answered so many times that
	// the lock is held; 0 means no limit. Attempts to reach the store do not
	// count.
	MaxAttempts int
}

// Config says how a Client works. The zero value, and nil, are good defaults.
type Config struct {
	// Holder is the public name under which the Client's locks are shown to
	// others, at most driver.MaxName bytes. It proves nothing and need not be
	// unique. The default is host/pid/random.
	Holder string

	// Prefix is put before every name on its way to the store, and taken off
	// on the way back, so that programs can share a store.
	Prefix string

	// Options are the defaults for those fields that are zero in the options
	// of a call.
	Options Options

	// Backoff paces the attempts of waiters.
	Backoff Backoff

	// RequestTimeout bounds every request to the store; an answer that comes
	// later does not count. 0 means 3 s. Renewals have a shorter bound if the
	// TTL asks for it.
	RequestTimeout time.Duration

	// Outage is how long a waiting Acquire rides out a store that does not
	// answer; 0 means 10 s. It does not apply to a store that refuses the very
	// first attempt: that error is returned at once.
	Outage time.Duration

	// Logger gets a record of lost locks and failing requests at level Warn,
	// and of acquisitions and releases at level Debug. nil logs nothing.
	Logger *slog.Logger

	// Hooks are called as things happen, for metrics.
	Hooks Hooks
}

// with fills the zero fields of o from the defaults.
func (o *Options) with(def *Options) Options {
	if o == nil {
		o = &Options{}
	}
	merged := *o
	if merged.TTL == 0 {
		merged.TTL = def.TTL
	}
	if merged.TTL == 0 {
		merged.TTL = DefaultTTL
	}
	if merged.Wait == 0 {
		merged.Wait = def.Wait
	}
	if merged.MinHold == 0 {
		merged.MinHold = def.MinHold
	}
	if merged.MaxHold == 0 {
		merged.MaxHold = def.MaxHold
	}
	if merged.Metadata == nil {
		merged.Metadata = def.Metadata
	}
	if merged.MaxAttempts == 0 {
		merged.MaxAttempts = def.MaxAttempts
	}
	merged.NoRenew = merged.NoRenew || def.NoRenew
	merged.Reentrant = merged.Reentrant || def.Reentrant
	merged.Detached = merged.Detached || def.Detached
	if len(merged.Metadata) > 0 {
		merged.Metadata = maps.Clone(merged.Metadata) // the caller may change his
	}
	return merged
}

// check refuses options that are out of bounds, or that the store cannot honour.
func (o *Options) check(can driver.Guarantees) error {
	if err := checkTTL(o.TTL); err != nil {
		return err
	}
	if o.Wait < 0 || o.MaxHold < 0 || o.MaxAttempts < 0 {
		return fmt.Errorf("%w: Wait, MaxHold and MaxAttempts cannot be negative", ErrInvalid)
	}
	if o.MinHold < 0 || o.MinHold > driver.MaxTTL {
		return fmt.Errorf("%w: MinHold %v is not between 0 and %v", ErrInvalid, o.MinHold, driver.MaxTTL)
	}
	if o.MinHold > 0 && !can.Keep {
		return fmt.Errorf("%w: MinHold", ErrUnsupported)
	}
	if o.Detached && !can.Detached {
		return fmt.Errorf("%w: Detached", ErrUnsupported)
	}
	return checkMetadata(o.Metadata)
}

func checkTTL(ttl time.Duration) error {
	if ttl < driver.MinTTL || ttl > driver.MaxTTL {
		return fmt.Errorf("%w: TTL %v is not between %v and %v", ErrInvalid, ttl, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

func checkMetadata(metadata map[string]string) error {
	if len(metadata) > driver.MaxMetadataEntries {
		return fmt.Errorf("%w: %d entries of metadata, at most %d fit", ErrInvalid, len(metadata), driver.MaxMetadataEntries)
	}
	size := 0
	for key, value := range metadata {
		size += len(key) + len(value)
		if key == "" || !printable(key) || !printable(value) {
			return fmt.Errorf("%w: metadata must be UTF-8 text without control characters, under keys that are not empty", ErrInvalid)
		}
	}
	if size > driver.MaxMetadata {
		return fmt.Errorf("%w: %d bytes of metadata, at most %d fit", ErrInvalid, size, driver.MaxMetadata)
	}
	return nil
}

// checkText refuses what cannot be a name or a holder.
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
	ascii := true
	for i := 0; i < len(text); i++ {
		if text[i] < ' ' || text[i] == 0x7f {
			return false
		}
		ascii = ascii && text[i] < utf8.RuneSelf
	}
	if ascii {
		return true
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return false
		}
	}
	return utf8.ValidString(text)
}
