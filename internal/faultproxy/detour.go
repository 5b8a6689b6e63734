package faultproxy

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// defaultPorts contains the URL schemes of stores on servers, with their default ports.
var defaultPorts = map[string]string{
	"etcd":              "2379",
	"redis":             "6379",
	"postgres":          "5432",
	"postgresql":        "5432",
	"postgres+advisory": "5432",
}

// Detour starts a proxy to each server in the URL of a store, or to its endpoint, and returns them
// with a URL that leads through them. If there is no such server, or the connection is encrypted,
// there are no proxies and the URL is unchanged.
func Detour(store string) (string, []*Proxy, error) {
	u, err := url.Parse(store)
	if err != nil {
		return "", nil, errors.New("malformed URL of a store") // it may have a password
	}
	query := u.Query()
	if endpoint, plain := strings.CutPrefix(query.Get("endpoint"), "http://"); plain {
		p, err := Listen(endpoint)
		if err != nil {
			return "", nil, err
		}
		query.Set("endpoint", "http://"+p.Addr())
		u.RawQuery = query.Encode()
		return u.String(), []*Proxy{p}, nil
	}
	port, ok := defaultPorts[u.Scheme]
	if !ok || u.Hostname() == "" {
		return store, nil, nil
	}
	hosts := strings.Split(u.Host, ",")
	proxies := make([]*Proxy, len(hosts))
	for i, target := range hosts {
		if _, _, err := net.SplitHostPort(target); err != nil {
			target += ":" + port
		}
		if proxies[i], err = Listen(target); err != nil {
			for _, p := range proxies[:i] {
				p.Close()
			}
			return "", nil, err
		}
		hosts[i] = proxies[i].Addr()
	}
	u.Host = strings.Join(hosts, ",")
	return u.String(), proxies, nil
}
