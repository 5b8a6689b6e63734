//go:build unix

package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
)

// The register is the resource that the locks protect: a number for each name. It rejects a
// request with a smaller fencing token than it has seen, as every resource should, and so
// shows what a lock is worth with fencing. Those that hold a lock beside others only read: their
// requests are rejected if their tokens are smaller than that of an exclusive holder.

// errFenced is the error of a holder that comes too late.
var errFenced = errors.New("a later holder has been here")

type registerRequest struct {
	Name      string
	Token     int64
	Exclusive bool // it has no other holders beside it
	Write     bool
	Value     int64
}

type registerResponse struct {
	Value  int64
	Fenced bool
}

// A registerClient is the connection of a worker process to the register.
type registerClient struct {
	mu      sync.Mutex
	conn    net.Conn
	encoder *json.Encoder
	decoder *json.Decoder
}

func dialRegister(address string) (*registerClient, error) {
	conn, err := net.Dial("unix", address)
	if err != nil {
		return nil, err
	}
	return &registerClient{conn: conn, encoder: json.NewEncoder(conn), decoder: json.NewDecoder(conn)}, nil
}

func (r *registerClient) Close() error { return r.conn.Close() }

func (r *registerClient) readValue(name string, token int64, exclusive bool) (int64, error) {
	return r.roundTrip(registerRequest{Name: name, Token: token, Exclusive: exclusive})
}

func (r *registerClient) writeValue(name string, token, value int64) error {
	_, err := r.roundTrip(registerRequest{Name: name, Token: token, Exclusive: true, Write: true, Value: value})
	return err
}

func (r *registerClient) roundTrip(c registerRequest) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.encoder.Encode(c); err != nil {
		return 0, err
	}
	var a registerResponse
	if err := r.decoder.Decode(&a); err != nil {
		return 0, err
	}
	if a.Fenced {
		return 0, errFenced
	}
	return a.Value, nil
}

// A registerServer is the register, on the coordinator's side.
type registerServer struct {
	listener net.Listener
	group    sync.WaitGroup
	accepted chan struct{} // a worker process has connected

	mu          sync.Mutex
	states      map[string]*registerState
	lostUpdates []string
}

type registerState struct {
	token     int64 // the greatest seen
	exclusive int64 // the greatest seen of an exclusive holder
	value     int64
}

func serveRegisters(address string, processes int) (*registerServer, error) {
	listener, err := net.Listen("unix", address)
	if err != nil {
		return nil, err
	}
	r := &registerServer{listener: listener, states: map[string]*registerState{}, accepted: make(chan struct{}, processes)}
	r.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			select {
			case r.accepted <- struct{}{}:
			default: // a successor of a killed process
			}
			r.group.Go(func() { r.serveConn(conn) })
		}
	})
	return r, nil
}

func (r *registerServer) serveConn(conn net.Conn) {
	defer conn.Close()
	encoder, decoder := json.NewEncoder(conn), json.NewDecoder(conn)
	for {
		var c registerRequest
		if decoder.Decode(&c) != nil {
			return // the process has ended
		}
		if encoder.Encode(r.handleRequest(c)) != nil {
			return
		}
	}
}

func (r *registerServer) handleRequest(c registerRequest) registerResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[c.Name]
	if s == nil {
		s = &registerState{}
		r.states[c.Name] = s
	}
	if c.Token < s.exclusive || c.Exclusive && c.Token < s.token {
		return registerResponse{Fenced: true}
	}
	if s.token = max(s.token, c.Token); c.Exclusive {
		s.exclusive = c.Token
	}
	if !c.Write {
		return registerResponse{Value: s.value}
	}
	// No holder of a token can have written since this writer read: its request would have
	// been rejected, or this one.
	if c.Value != s.value+1 && c.Token > 0 {
		r.lostUpdates = append(r.lostUpdates, fmt.Sprintf("%s was set to %d by the holder of token %d, over %d", c.Name, c.Value, c.Token, s.value))
	}
	s.value = c.Value
	return registerResponse{Value: s.value}
}

// closeAndWait stops the server when the processes have ended, and returns where an update
// was lost.
func (r *registerServer) closeAndWait() []string {
	_ = r.listener.Close() // it is no longer needed
	r.group.Wait()
	return r.lostUpdates
}
