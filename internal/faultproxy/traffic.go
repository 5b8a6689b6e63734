package faultproxy

import "sync/atomic"

// Traffic is what has come to a proxy from one side.
type Traffic struct {
	Bytes int64

	// Reads is how often there was something to read. Of a client that waits
	// for each answer it is the number of its requests, and of their answers.
	Reads int64
}

// Traffic returns what has come up to now that is to go one way.
func (p *Proxy) Traffic(way Direction) Traffic {
	c := &p.traffic[way]
	return Traffic{Bytes: c.bytes.Load(), Reads: c.reads.Load()}
}

type counter struct{ bytes, reads atomic.Int64 }

func (c *counter) count(bytes int) {
	c.bytes.Add(int64(bytes))
	c.reads.Add(1)
}
