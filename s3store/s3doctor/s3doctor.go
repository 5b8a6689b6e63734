// Package s3doctor adds the checks of S3 to package doctor. A program that examines stores in S3
// imports it for that effect:
//
//	import _ "github.com/holdfast-go/holdfast/s3store/s3doctor"
package s3doctor

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/s3store"
)

func init() { doctor.Register(examine) }

// examine has the server refuse writes, one after the other and in a race. What else the user may
// do the probe of package doctor shows.
func examine(ctx context.Context, store driver.Store, o doctor.Options) ([]doctor.Finding, bool, error) {
	s, ok := store.(*s3store.Store)
	if !ok {
		return nil, false, nil
	}
	f := doctor.Finding{Check: "s3.conditions", Severity: doctor.OK, Found: "the server refuses a write whose condition does not hold, also in a race"}
	if o.NoProbe {
		f.Severity, f.Found, f.Want = doctor.Unknown, "not tried: it takes a write", "conditional writes"
		return []doctor.Finding{f}, true, nil
	}
	err := s.Check(ctx)
	if errors.Is(err, driver.ErrUnsupported) {
		f.Severity, f.Found, f.Want, f.Remedy = doctor.Failure, err.Error(), "conditional writes", "a server that has them: see the documentation of package s3store"
		err = nil
	}
	if err != nil {
		return nil, true, err
	}
	return []doctor.Finding{f}, true, nil
}
