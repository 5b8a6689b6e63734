//go:build unix

package stage

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// RedisUse is what a Redis server has done and used since it was started.
type RedisUse struct {
	Commands float64 // with the few that read these figures; those that scripts run count as well
	In, Out  float64 // bytes from and to clients
	CPU      float64 // seconds
}

// ReadRedis asks a server for its figures.
func ReadRedis(server *servers.Redis) RedisUse {
	info := fields(server.Do("INFO"))
	return RedisUse{
		Commands: info["total_commands_processed"],
		In:       info["total_net_input_bytes"],
		Out:      info["total_net_output_bytes"],
		CPU:      info["used_cpu_sys"] + info["used_cpu_user"],
	}
}

// Sub returns what was used between other and u.
func (u RedisUse) Sub(other RedisUse) RedisUse {
	return RedisUse{
		Commands: u.Commands - other.Commands,
		In:       u.In - other.In,
		Out:      u.Out - other.Out,
		CPU:      u.CPU - other.CPU,
	}
}

// fields reads the numbers of an INFO.
func fields(info string) map[string]float64 {
	numbers := map[string]float64{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			numbers[name] = n
		}
	}
	return numbers
}
