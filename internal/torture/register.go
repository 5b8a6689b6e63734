//go:build unix

package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
)

// The register is what the locks protect: a number for each name, which refuses
// whoever comes with a smaller fencing token than it has seen. It does what every
// resource should do, and shows what a lock is worth then.

// errFenced is what a holder gets who comes too late.
var errFenced = errors.New("a later holder has been here")

type registerCall struct {
	Name  string
	Token int64
	Write bool
	Value int64
}

type registerAnswer struct {
	Value  int64
	Fenced bool
}

// A register is a worker process's connection to it.
type register struct {
	mu      sync.Mutex
	conn    net.Conn
	encoder *json.Encoder
	decoder *json.Decoder
}

func dialRegister(address string) (*register, error) {
	conn, err := net.Dial("unix", address)
	if err != nil {
		return nil, err
	}
	return &register{conn: conn, encoder: json.NewEncoder(conn), decoder: json.NewDecoder(conn)}, nil
}

func (r *register) Close() error { return r.conn.Close() }

func (r *register) read(name string, token int64) (int64, error) {
	return r.call(registerCall{Name: name, Token: token})
}

func (r *register) write(name string, token, value int64) error {
	_, err := r.call(registerCall{Name: name, Token: token, Write: true, Value: value})
	return err
}

func (r *register) call(c registerCall) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.encoder.Encode(c); err != nil {
		return 0, err
	}
	var a registerAnswer
	if err := r.decoder.Decode(&a); err != nil {
		return 0, err
	}
	if a.Fenced {
		return 0, errFenced
	}
	return a.Value, nil
}

// registers is the coordinator's side.
type registers struct {
	listener net.Listener
	group    sync.WaitGroup

	mu      sync.Mutex
	of      map[string]*registerState
	clashes []string
}

type registerState struct {
	token int64 // the greatest seen
	value int64
}

func serveRegisters(address string) (*registers, error) {
	listener, err := net.Listen("unix", address)
	if err != nil {
		return nil, err
	}
	r := &registers{listener: listener, of: map[string]*registerState{}}
	r.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.group.Go(func() { r.serve(conn) })
		}
	})
	return r, nil
}

func (r *registers) serve(conn net.Conn) {
	defer conn.Close()
	encoder, decoder := json.NewEncoder(conn), json.NewDecoder(conn)
	for {
		var c registerCall
		if decoder.Decode(&c) != nil {
			return // the process has ended
		}
		if encoder.Encode(r.answer(c)) != nil {
			return
		}
	}
}

func (r *registers) answer(c registerCall) registerAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of[c.Name]
	if s == nil {
		s = &registerState{}
		r.of[c.Name] = s
	}
	if c.Token < s.token {
		return registerAnswer{Fenced: true}
	}
	s.token = c.Token
	if !c.Write {
		return registerAnswer{Value: s.value}
	}
	// Nobody with a token can have written since the writer read: he would have
	// been refused, or the writer now.
	if c.Value != s.value+1 && c.Token > 0 {
		r.clashes = append(r.clashes, fmt.Sprintf("%s was set to %d by the holder of token %d, over %d", c.Name, c.Value, c.Token, s.value))
	}
	s.value = c.Value
	return registerAnswer{Value: s.value}
}

// close ends the service when the processes have ended, and returns where an
// update was lost.
func (r *registers) close() []string {
	_ = r.listener.Close() // it has served its purpose
	r.group.Wait()
	return r.clashes
}
