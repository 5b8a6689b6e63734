//go:build unix

package torture

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

// UnderDo runs work under a lock.
type UnderDo = func(ctx context.Context, c *holdfast.Client, name string, o *holdfast.Options, work func(context.Context, *holdfast.Lock) error) error

// SetUnderDo has workers run work in another way than by Do.
func SetUnderDo(f UnderDo) { runUnderDo = f }
