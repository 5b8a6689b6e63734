//go:build unix

package bench

import (
	"github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/memstore"
)

// Local lists the stores that need no server.
func Local() []Contender {
	return []Contender{
		{
			Name: "Holdfast, memory", Settings: "memstore.New", Waits: true,
			Open: func(o Options) (Locker, error) { return openHoldfast(memstore.New(), o.TTL), nil },
		},
		{
			Name: "Holdfast, files", Settings: "filestore.New on a folder, all defaults", Waits: true,
			Open: func(o Options) (Locker, error) {
				store, err := filestore.New(o.Servers[0], nil)
				if err != nil {
					return nil, err
				}
				return openHoldfast(store, o.TTL), nil
			},
		},
	}
}
