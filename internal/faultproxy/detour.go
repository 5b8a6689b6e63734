package faultproxy

import (
	"errors"
	"net/url"
)

// ports are the schemes of the URLs of stores that name one server, with the
// ports that they stand for.
var ports = map[string]string{
	"redis":             "6379",
	"postgres":          "5432",
	"postgresql":        "5432",
	"postgres+advisory": "5432",
}

// Detour starts a proxy to the server that the URL of a store names, and returns
// it with the URL of the way through it. The proxy is nil and the URL is as it
// was if there is no such server, or it is spoken to in secret.
func Detour(store string) (string, *Proxy, error) {
	u, err := url.Parse(store)
	if err != nil {
		return "", nil, errors.New("malformed URL of a store") // it may have a password
	}
	port, ok := ports[u.Scheme]
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
