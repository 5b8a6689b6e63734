//go:build unix

package lockers

import (
	"github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// File lists the libraries for files of one machine.
func File() []Contender {
	return []Contender{{
		Name: "Holdfast, files", Settings: "filestore.New on a folder, all defaults", Role: Ours, Renews: true,
		Open: func(o Options) (measure.Locker, error) {
			store, err := filestore.New(o.Servers[0], nil)
			if err != nil {
				return nil, err
			}
			return openHoldfast(store, o.TTL), nil
		},
	}}
}
