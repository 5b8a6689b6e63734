package faultproxy

import "sync/atomic"

// Traffic counts what a proxy has received for one direction.
type Traffic struct {
	Bytes int64

	// Reads is how often there was something to read. For a client that waits for each
	// reply, it is the number of its requests, and of their replies.
	Reads int64
}

// Traffic returns what has been received up to now for one direction.
func (p *Proxy) Traffic(way Direction) Traffic {
	c := &p.traffic[way]
	return Traffic{Bytes: c.bytes.Load(), Reads: c.reads.Load()}
}

type trafficCounter struct{ bytes, reads atomic.Int64 }

func (c *trafficCounter) addRead(bytes int) {
	c.bytes.Add(int64(bytes))
	c.reads.Add(1)
}
