package pgstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// A recordRow is the server's description of a hold; see the constant recordColumns. Columns
// without a value are null.
type recordRow struct {
	token, since, until, left *int64
	holder, metadata          *string
	kept                      *bool
	limit                     *int64
	waiting                   int     // set by Lookup and List
	shares                    *string // set by Lookup and List if several can hold the lock
}

// columns returns the destinations for a row that has the columns before in front.
func (r *recordRow) columns(before ...any) []any {
	return append(before, &r.token, &r.holder, &r.since, &r.until, &r.left, &r.kept, &r.metadata)
}

func (r *recordRow) toRecord(name string) olddriver.Record {
	if shares := decodeShares(name, valueOrZero(r.shares)); len(shares) > 0 {
		rec := shares[0]
		rec.Others, rec.Waiting = shares[1:], r.waiting
		return rec
	}
	return olddriver.Record{
		Name:      name,
		Holder:    valueOrZero(r.holder),
		Token:     valueOrZero(r.token),
		Since:     time.UnixMicro(valueOrZero(r.since)),
		Until:     time.UnixMicro(valueOrZero(r.until)),
		Remaining: time.Duration(min(max(valueOrZero(r.left), 1), math.MaxInt64/1000)) * time.Microsecond,
		Kept:      valueOrZero(r.kept),
		Limit:     int(valueOrZero(r.limit)),
		Waiting:   r.waiting,
		Metadata:  decodeMetadata(valueOrZero(r.metadata)),
	}
}

// decodeShares reads the array of holdfast_shares_json.
func decodeShares(name, text string) []olddriver.Record {
	var rows []json.RawMessage
	if text == "" || json.Unmarshal([]byte(text), &rows) != nil {
		return nil
	}
	var records []olddriver.Record
	for _, data := range rows {
		row := recordRow{}
		columns := row.shareColumns()
		if json.Unmarshal(data, &columns) == nil {
			records = append(records, row.toRecord(name))
		}
	}
	return records
}

// shareColumns returns the destinations for a row of holdfast_shares.
func (r *recordRow) shareColumns() []any {
	return []any{&r.token, &r.holder, &r.since, &r.until, &r.left, &r.kept, &r.metadata, &r.limit}
}

func valueOrZero[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}

// decodeMetadata reads metadata that any program may have written: the members of an object, those
// that are not strings as JSON. Other JSON is one member, "value".
func decodeMetadata(text string) map[string]string {
	if text == "" || text == "{}" || text == "null" {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		members = map[string]json.RawMessage{"value": json.RawMessage(text)}
	}
	metadata := make(map[string]string, len(members))
	for key, raw := range members {
		var plain string
		if !bytes.HasPrefix(raw, []byte{'"'}) || json.Unmarshal(raw, &plain) != nil {
			plain = string(raw)
		}
		metadata[key] = plain
	}
	return metadata
}

// encodeMetadata makes a JSON object.
func encodeMetadata(metadata map[string]string) (string, error) {
	if len(metadata) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return "", fmt.Errorf("%w: metadata: %w", driver.ErrInvalid, err)
	}
	if len(text) > maxMetadata {
		return "", fmt.Errorf("%w: the metadata has %d bytes as JSON, more than %d", driver.ErrInvalid, len(text), maxMetadata)
	}
	return string(text), nil
}

// maxMetadata is for direct callers of this package: package holdfast stays far below. It is more
// than the worst case of driver.MaxMetadata in JSON.
const maxMetadata = 8192
