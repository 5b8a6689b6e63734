package driver

import "errors"

// Errors that mean the same in every store. Stores wrap them with what they
// know; callers use errors.Is.
var (
	// ErrNotApplied marks an error after which the request certainly had no
	// effect and never will have one. It may be joined with any other error.
	ErrNotApplied = errors.New("nothing was changed")

	// ErrUnsupported means that this store cannot do what was asked, now or
	// later. It implies that nothing was changed.
	ErrUnsupported = errors.New("not supported by this store")

	// ErrInvalid means that the request cannot be carried out as it stands.
	// It implies that nothing was changed.
	ErrInvalid = errors.New("invalid argument")

	// ErrCorrupt means that what the store holds for this name is not what it
	// wrote; only a person can mend it. The error says where to look. It
	// implies that nothing was changed.
	ErrCorrupt = errors.New("corrupt record")

	// ErrClosed means that the store has been closed. It implies that nothing
	// was changed.
	ErrClosed = errors.New("closed")
)

// NotApplied reports whether err says that the request had no effect.
func NotApplied(err error) bool {
	return errors.Is(err, ErrNotApplied) || Permanent(err)
}

// Permanent reports whether err would come again however often the request were
// sent.
func Permanent(err error) bool {
	return errors.Is(err, ErrUnsupported) || errors.Is(err, ErrInvalid) ||
		errors.Is(err, ErrCorrupt) || errors.Is(err, ErrClosed)
}
