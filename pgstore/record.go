package pgstore

import (
	"encoding/json"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A holdJSON is the server's description of a hold.
type holdJSON struct {
	Name     string
	Holder   string
	Token    int64
	Since    int64 // in µs since 1970
	Left     int64 // in µs
	Kept     bool
	Limit    int
	Waiting  int
	Metadata map[string]string
}

func (h *holdJSON) record() driver.Record {
	rec := driver.Record{
		Name:      h.Name,
		Holder:    h.Holder,
		Token:     h.Token,
		Since:     time.UnixMicro(h.Since),
		Remaining: time.Duration(min(max(h.Left, 1), math.MaxInt64/1000)) * time.Microsecond,
		Kept:      h.Kept,
		Waiting:   h.Waiting,
		Metadata:  h.Metadata,
	}
	if h.Limit > 1 {
		rec.Limit = h.Limit
	}
	return rec
}

func records(holds []holdJSON) (all []driver.Record) {
	for i := range holds {
		all = append(all, holds[i].record())
	}
	return all
}

// encodeMetadata makes a JSON object, or returns nil if there is no metadata.
func encodeMetadata(metadata map[string]string) *string {
	if len(metadata) == 0 {
		return nil
	}
	text, _ := json.Marshal(metadata) // A map of strings causes no error.
	object := string(text)
	return &object
}
