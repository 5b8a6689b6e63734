package redisstore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// What the server sends, besides string, int64, []any and nil.
type (
	replyError string
	push       []any // sent without a request
)

// encodeCommand makes the message of a command.
func encodeCommand(words ...string) []byte {
	message := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		message = fmt.Appendf(message, "$%d\r\n%s\r\n", len(word), word)
	}
	return message
}

// Bounds on what a server may send: it is not one of Redis beyond them.
const (
	maxBulk  = 512 << 20
	maxItems = 1 << 20
	maxDepth = 8
)

var errProtocol = errors.New("the server does not speak RESP3")

// decodeReply reads one message of RESP3. Maps and sets are read as lists.
func decodeReply(r *bufio.Reader) (any, error) { return decodeAt(r, 0) }

func decodeAt(r *bufio.Reader, depth int) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || text == "" || depth > maxDepth {
		return nil, errProtocol
	}
	mark, text := text[0], text[1:]
	switch mark {
	case '+', ',', '#', '(':
		return text, nil
	case '-':
		return replyError(text), nil
	case '_':
		return nil, nil
	case ':':
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errProtocol
		}
		return n, nil
	case '$', '=', '!':
		return decodeBulk(r, mark, text)
	case '*', '~', '>', '%', '|':
		return decodeItems(r, mark, text, depth)
	}
	return nil, errProtocol
}

func decodeBulk(r *bufio.Reader, mark byte, size string) (any, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n > maxBulk {
		return nil, errProtocol
	}
	if n < 0 {
		return nil, nil
	}
	body := make([]byte, n+2)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	text := string(body[:n])
	if mark == '!' {
		return replyError(text), nil
	}
	return text, nil
}

func decodeItems(r *bufio.Reader, mark byte, size string, depth int) (any, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n > maxItems {
		return nil, errProtocol
	}
	if n < 0 {
		return nil, nil
	}
	if mark == '%' || mark == '|' {
		n *= 2
	}
	var items []any
	for range n {
		item, err := decodeAt(r, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if mark == '>' {
		return push(items), nil
	}
	if items == nil {
		items = []any{}
	}
	return items, nil
}
