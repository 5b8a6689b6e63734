package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// recordLimit is the maximum size of a record: a page. The one write that replaces a record is
	// then whole or did not happen, whenever its process is killed.
	recordLimit = 4096

	// plainMetadataLimit is the room for metadata in plain JSON. Together with the longest name,
	// holder and other fields that is still within recordLimit.
	plainMetadataLimit = 2048

	// recordFormat is the number in the first field of every file. A later format that this version
	// must not misread gets another number.
	recordFormat = 1
)

// encodeLine returns the line for r, followed by spaces up to size bytes, so that it covers the
// line that it replaces.
func (r *record) encodeLine(size int) ([]byte, error) {
	rec := *r
	rec.Format = recordFormat
	rec.setMetadata(r.metadata())
	line := append(encodeJSON(&rec, size), '\n')
	if len(line) > recordLimit {
		return nil, fmt.Errorf("%w: name, holder and metadata need a record of %d bytes, and %d is the limit",
			driver.ErrInvalid, len(line), recordLimit)
	}
	return padded(line, size), nil
}

// setMetadata sets the metadata in plain form if they are UTF-8 and short enough, and packed
// otherwise.
func (r *record) setMetadata(metadata map[string]string) {
	r.Metadata, r.Packed = metadata, nil
	if len(metadata) == 0 {
		return
	}
	plain := len(`,"metadata":`)+len(encodeJSON(metadata, 0)) < plainMetadataLimit
	for key, value := range metadata {
		plain = plain && utf8.ValidString(key) && utf8.ValidString(value)
	}
	if plain {
		return
	}
	r.Metadata = nil
	for key, value := range metadata {
		r.Packed = append(r.Packed, []byte(key), []byte(value))
	}
}

// encodeJSON returns value on one line, in which people can read "<" and "&". The line has room for
// size bytes.
func encodeJSON(value any, size int) []byte {
	b := bytes.NewBuffer(make([]byte, 0, max(size, 512)))
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("filestore: numbers and strings have no JSON: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// decodeRecord reads the contents of a record file. An empty file, or one of zeros only, is what a
// power loss or an interrupted creation leaves: a free name.
func decodeRecord(data []byte) (record, error) {
	r := record{State: stateFree}
	if len(bytes.Trim(data, "\x00")) == 0 {
		return r, nil
	}
	if len(data) > recordLimit {
		return r, fmt.Errorf("it is longer than the %d bytes of any record", recordLimit)
	}
	line, rest, _ := bytes.Cut(data, []byte{'\n'})
	if err := r.parse(string(line)); err != nil {
		return r, err
	}
	if err := r.validate(); err != nil {
		return r, err
	}
	if t := r.Tolerant; t != nil && t.At == 0 {
		size := min(t.Size, int64(len(rest)))
		if err := r.parseHolds(rest[:size]); err != nil {
			return r, err
		}
		rest = rest[size:]
	}
	if len(bytes.TrimLeft(rest, " \n")) > 0 {
		return r, errNotRecord
	}
	return r, nil
}

// parse reads a line with a record.
func (r *record) parse(line string) error {
	if json.Unmarshal([]byte(line), r) != nil {
		return errNotRecord
	}
	return nil
}

var (
	errNotRecord   = errors.New("it is not a record of this store")
	errSessionName = errors.New("its session is not the name of one")
)

func (r *record) validate() error {
	switch {
	case r.Format == 0:
		return errNotRecord
	case r.Format == tolerantFormat:
		if err := r.validateTolerant(); err != nil {
			return err
		}
	case r.Format != recordFormat:
		return fmt.Errorf("it has the format %d of another version of this store", r.Format)
	case r.State != stateFree && r.State != stateHeld && r.State != stateKept:
		return errors.New("its state is none of free, held and kept")
	case r.Limit != 0 || r.Tolerant != nil:
		return errNotRecord
	}
	return r.validateFields()
}

// validateFields checks what every record has and every hold of a record with several.
func (r *record) validateFields() error {
	switch {
	case r.Token <= 0 || r.lastToken() > driver.MaxToken:
		return errors.New("its token is out of range")
	case r.Session != "" && !isSessionID(r.Session):
		return errSessionName
	case len(r.Packed)%2 != 0:
		return errors.New("its metadata is not made of pairs")
	}
	return nil
}
