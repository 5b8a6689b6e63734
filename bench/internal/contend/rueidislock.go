//go:build unix

package contend

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	rueidislib "github.com/redis/rueidis/rueidislock"
)

type rueidisOptions = rueidislib.LockerOption

// tuned are the settings that suit a single server: the defaults take three
// keys for each lock, and tell every holder of the changes that it makes itself.
// TryNextAfter is the time-out of an attempt. An attempt that takes longer than
// its default of 20 ms, on a server that is busy, is undone, and its caller waits
// for a notification of what was undone, which NoLoopTracking keeps from him.
func tuned(o *rueidisOptions) {
	o.KeyMajority = 1
	o.NoLoopTracking = true
	o.TryNextAfter = time.Second
}

func rueidislock(name, settings string, set func(*rueidisOptions)) Kind {
	return Kind{
		Name: name, Settings: settings, Role: Rival, Renews: true, Keys: keyOf("rueidislock:0:"),
		Open: func(o Options) (Contender, error) {
			options := rueidisOptions{
				ClientOption: rueidis.ClientOption{InitAddress: o.Servers},
				KeyValidity:  o.TTL,
			}
			set(&options)
			locker, err := rueidislib.NewLocker(options)
			if err != nil {
				return nil, err
			}
			return rueidisLocker{locker}, nil
		},
	}
}

type rueidisLocker struct{ rueidislib.Locker }

func (l rueidisLocker) Acquire(ctx context.Context, name string) (Held, error) {
	_, release, err := l.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidisHeld(release), nil
}

func (l rueidisLocker) Close() error {
	l.Locker.Close()
	return nil
}

type rueidisHeld context.CancelFunc

// Release returns no error: rueidislock does not say whether it could.
func (release rueidisHeld) Release(context.Context) error {
	release()
	return nil
}
