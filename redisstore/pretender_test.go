//go:build unix

package redisstore

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// A pretender is a server that knows what the connection for wake-ups needs, in
// virtual time: what comes when is exact then.
type pretender struct {
	mu      sync.Mutex
	values  map[string]string
	links   map[*pretence]bool
	count   map[string]int // of commands, and of attempts to "dial"
	silent  bool           // it reads, and answers nothing
	away    bool           // it cannot be reached
	mute    bool           // it answers no GET
	refusal string         // its answer to every GET, "" for none
	old     bool           // it does not know what tracking needs
	deaf    chan struct{}  // it reads nothing until this is closed; nil if it does
}

// A pretence is a connection to a pretender.
type pretence struct {
	conn    net.Conn
	out     chan []byte
	tracked map[string]bool
}

// pretend runs a test in virtual time with a store over a pretender.
func pretend(t *testing.T, test func(t *testing.T, p *pretender, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pretender{values: map[string]string{}, links: map[*pretence]bool{}, count: map[string]int{}}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: p.dial}) // It would ask for the address of a name.
		s := New(client, nil)
		defer client.Close()
		defer p.cut()
		defer p.hear()
		defer s.Close()
		test(t, p, s)
	})
}

func (p *pretender) dial(context.Context, string, string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count["dial"]++
	if p.away {
		return nil, errors.New("away")
	}
	near, far := net.Pipe()
	l := &pretence{conn: far, out: make(chan []byte, 1000), tracked: map[string]bool{}}
	p.links[l] = true
	go func() {
		for message := range l.out {
			_, _ = l.conn.Write(message) // Whoever hung up wants no answer.
		}
	}()
	go p.serve(l)
	return near, nil
}

func (p *pretender) serve(l *pretence) {
	for reader := bufio.NewReader(l.conn); ; {
		message, err := decodeReply(reader)
		p.mu.Lock()
		if err != nil {
			delete(p.links, l)
			close(l.out)
			p.mu.Unlock()
			_ = l.conn.Close() // The other side has.
			return
		}
		p.answer(l, message.([]any))
		deaf := p.deaf
		p.mu.Unlock()
		if deaf != nil {
			<-deaf
		}
	}
}

func (p *pretender) answer(l *pretence, words []any) {
	command := words[0].(string)
	p.count[command]++
	switch {
	case p.silent || p.deaf != nil:
	case command != "GET" && p.old:
		l.out <- []byte("-ERR unknown command\r\n")
	case command == "GET" && p.mute:
	case command == "GET" && p.refusal != "":
		l.out <- []byte("-" + p.refusal + "\r\n")
	case command == "GET":
		key := words[1].(string)
		l.tracked[key] = true
		if value, held := p.values[key]; held {
			l.out <- []byte("+" + value + "\r\n")
		} else {
			l.out <- []byte("_\r\n")
		}
	default:
		l.out <- []byte("+OK\r\n")
	}
}

// set changes the owner of a lock, "" for none.
func (p *pretender) set(key, owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.values[key] = owner; owner == "" {
		delete(p.values, key)
	}
	for l := range p.links {
		if l.tracked[key] && !p.silent && p.deaf == nil {
			l.tracked[key] = false
			l.out <- append([]byte(">2\r\n+invalidate\r\n"), encodeCommand(key)...)
		}
	}
}

// say sends something that nobody has asked for.
func (p *pretender) say(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.out <- []byte(message)
	}
}

// harm sets whether the server is silent, and whether it is away.
func (p *pretender) harm(silent, away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent, p.away = silent, away
}

// spoil sets whether GETs are answered, and with what error.
func (p *pretender) spoil(mute bool, refusal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute, p.refusal = mute, refusal
}

// deafen has the server read nothing more than what is on its way; hear ends it.
func (p *pretender) deafen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = make(chan struct{})
}

func (p *pretender) hear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf != nil {
		close(p.deaf)
		p.deaf = nil
	}
}

// connections returns how many there are.
func (p *pretender) connections() int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// counted returns how many commands of a kind there were since the last call.
func (p *pretender) counted(command string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.count[command]
	p.count[command] = 0
	return n
}

func (p *pretender) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		_ = l.conn.Close() // It may be closed already.
	}
}
