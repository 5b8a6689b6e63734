package transport

import (
	"net"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestExamine(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 6379} }
	for what, c := range map[string]struct {
		local, remote net.Addr
		encrypted     bool
		want          driver.Severity
	}{
		"another host":               {tcp("192.0.2.1"), tcp("192.0.2.7"), false, driver.SeverityWarning},
		"another host, IPv6":         {tcp("2001:db8::1"), tcp("2001:db8::7"), false, driver.SeverityWarning},
		"another host, no local":     {nil, tcp("192.0.2.7"), false, driver.SeverityWarning},
		"another host, TLS":          {tcp("192.0.2.1"), tcp("192.0.2.7"), true, driver.SeverityOK},
		"loopback":                   {tcp("127.0.0.1"), tcp("127.0.0.1"), false, driver.SeverityOK},
		"loopback, another address":  {tcp("127.0.0.1"), tcp("127.8.0.1"), false, driver.SeverityOK},
		"loopback, IPv6":             {tcp("::1"), tcp("::1"), false, driver.SeverityOK},
		"an own address":             {tcp("192.0.2.1"), tcp("192.0.2.1"), false, driver.SeverityOK},
		"a socket":                   {nil, &net.UnixAddr{Name: "/run/redis"}, false, driver.SeverityOK},
		"no address":                 {nil, nil, false, driver.SeverityUnknown},
		"a tunnel without addresses": {tcp("0.0.0.0"), tcp("0.0.0.0"), false, driver.SeverityUnknown},
		"a pipe":                     {nil, &net.IPAddr{}, false, driver.SeverityUnknown},
	} {
		f := Examine("tls", c.local, c.remote, c.encrypted, "rediss://")
		if f.Severity != c.want || (f.Want == "") != (c.want == driver.SeverityOK) {
			t.Errorf("%s: %v", what, f)
		}
	}
}
