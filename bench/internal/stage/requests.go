//go:build unix

package stage

import (
	"bufio"
	"fmt"
	"net"
	"strings"
)

// CountRequests begins to count the requests that clients send to a Redis
// server, and returns what ends it and reports their number. The figures of INFO
// are no good for this: they count the commands that scripts run as well.
func CountRequests(addr string) (func() (int, error), error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(conn)
	if _, err := lines.ReadString('\n'); err != nil { // It says that it begins.
		return nil, err
	}
	const end = "end of what is counted"
	count := make(chan int, 1)
	go func() {
		n := 0
		for {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, end) {
				count <- n
				return
			}
			if !strings.Contains(line, " lua] ") && !strings.Contains(line, `"INFO"`) {
				n++
			}
		}
	}()
	return func() (int, error) {
		defer conn.Close()
		marker, err := net.Dial("tcp", addr)
		if err != nil {
			return 0, err
		}
		defer marker.Close()
		_, err = fmt.Fprintf(marker, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(end), end)
		return <-count, err
	}, nil
}
