//go:build unix && !linux

package main

import "errors"

// supported reports whether this machine can do that: other systems than Linux do not pin
// processes.
func (p placement) supported() bool { return p == anyCore }

func (p placement) pin([]int) (unpin func() error, err error) {
	if p != anyCore {
		return nil, errors.ErrUnsupported
	}
	return func() error { return nil }, nil
}
