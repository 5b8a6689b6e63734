//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// A redisUsage is what a Redis server has done and used since it was started.
type redisUsage struct {
	commands float64 // with the few that read these figures, and those that scripts run
	in, out  float64 // bytes from and to clients
	cpu      float64 // in seconds
}

func readRedis(server *servers.Redis) redisUsage {
	info := server.Do("INFO")
	number := func(name string) float64 {
		n, err := strconv.ParseFloat(infoField(info, name), 64)
		if err != nil {
			panic(err) // Every Redis reports these fields.
		}
		return n
	}
	return redisUsage{
		commands: number("total_commands_processed"),
		in:       number("total_net_input_bytes"),
		out:      number("total_net_output_bytes"),
		cpu:      number("used_cpu_sys") + number("used_cpu_user"),
	}
}

// since returns the usage between an earlier reading and u.
func (u redisUsage) since(before redisUsage) redisUsage {
	return redisUsage{u.commands - before.commands, u.in - before.in, u.out - before.out, u.cpu - before.cpu}
}

// infoField returns a field of the reply to INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// countRequests counts the requests that clients send to a Redis server within the span. The
// figures of INFO cannot be used for this: they include the commands that scripts run.
func countRequests(addr string, span time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	return countRequestsUntil(ctx, addr)
}

// countRequestsUntil counts the requests until ctx ends.
func countRequestsUntil(ctx context.Context, addr string) (count int, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	lines := bufio.NewReader(conn)
	if _, err := lines.ReadString('\n'); err != nil { // The reply to MONITOR.
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		if !strings.Contains(line, " lua] ") {
			count++
		}
	}
}
