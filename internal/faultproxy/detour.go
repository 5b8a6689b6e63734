package faultproxy

import (
	"errors"
	"net/url"
)

// defaultPorts contains the URL schemes of stores on one server, with their default ports.
var defaultPorts = map[string]string{
	"redis":             "6379",
	"postgres":          "5432",
	"postgresql":        "5432",
	"postgres+advisory": "5432",
}

// Detour starts a proxy to the server in the URL of a store, and returns it with a URL that
// leads through it. If there is no such server, or the connection is encrypted, the proxy
// is nil and the URL is unchanged.
func Detour(store string) (string, *Proxy, error) {
	u, err := url.Parse(store)
	if err != nil {
		return "", nil, errors.New("malformed URL of a store") // it may have a password
	}
	port, ok := defaultPorts[u.Scheme]
	if !ok || u.Hostname() == "" {
		return store, nil, nil
	}
	target := u.Host
	if u.Port() == "" {
		target += ":" + port
	}
	p, err := Listen(target)
	if err != nil {
		return "", nil, err
	}
	u.Host = p.Addr()
	return u.String(), p, nil
}
