package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockui"
)

// A uiCommand is "holdfast ui" with its flags.
type uiCommand struct {
	*cli
	listen    string
	tokenFile string
	options   lockui.Options
}

func newUI(c *cli) *cobra.Command {
	u := &uiCommand{cli: c}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page that shows the locks",
		Long: `Ui serves a page that shows the locks of one store or of several, and keeps it
up to date: who holds what, since when, how long the store keeps it, and how
many wait; and what doctor finds in the stores. Each --store is a store of its
own here; of a quorum, give the URL quorum:?node=URL&node=URL (with URLs
escaped).

The page is read-only; --allow-break adds a button that breaks a hold, if it is
still that hold, with a line on standard error before each and one after it. It
is served to this host alone, unless --token-file names a file with a token of
16 characters or more that viewers must present, or --behind-proxy declares that
a proxy admits the right people. There is no TLS: to be reached from elsewhere
it should be behind a proxy that has it.

Exit code: 78 if the address cannot be listened on.`,
		Example: `  holdfast ui
  holdfast ui --store redis://cache:6379 --store postgres://db/app --allow-break
  holdfast ui --behind-proxy --host locks.example.com`,
		Args: arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return interruptible(u.serve)
		},
	}
	f, o := cmd.Flags(), &u.options
	f.StringVar(&u.listen, "listen", "127.0.0.1:7070", "the `ADDRESS` to serve on")
	f.BoolVar(&o.AllowBreak, "allow-break", false, "let viewers break holds")
	f.StringVar(&u.tokenFile, "token-file", "", "a `FILE` with the token that viewers must present")
	f.BoolVar(&o.BehindProxy, "behind-proxy", false, "a proxy in front admits the right people; trust its X-Forwarded headers")
	f.StringSliceVar(&o.Hosts, "host", nil, "a host `NAME` under which the page is reached, beside localhost and loopback addresses (with a token or a proxy: all IP addresses); may be repeated")
	f.BoolVar(&o.Metrics, "metrics", false, "serve figures for Prometheus, too, at metrics")
	return cmd
}

// serve serves the page until ctx ends.
func (u *uiCommand) serve(ctx context.Context) error {
	if u.options.AllowBreak && u.quiet {
		return usageError(errors.New("--allow-break writes a line for each break, which --quiet forbids"), "one of them")
	}
	if u.tokenFile != "" {
		text, err := os.ReadFile(u.tokenFile)
		if err != nil {
			return usageError(err, "another FILE")
		}
		if u.options.Token = strings.TrimSpace(string(text)); u.options.Token == "" {
			return usageError(fmt.Errorf("--token-file %s: there is no token in it", u.tokenFile), "openssl rand -hex 16 >FILE")
		}
	}
	if !isLoopback(u.listen) && u.options.Token == "" && !u.options.BehindProxy {
		return usageError(fmt.Errorf("--listen %s can be reached from elsewhere, and nothing guards the page", u.listen), "--token-file FILE or --behind-proxy")
	}
	clients, err := u.openEach(ctx)
	defer func() {
		for _, client := range clients {
			_ = client.Close() // it holds nothing
		}
	}()
	if err != nil {
		return err
	}
	u.options.Logger = u.logger(os.Stderr, slog.LevelInfo)
	page, err := lockui.Handler(u.options)
	if err != nil {
		return usageError(err, "")
	}
	address, stop, err := u.startServer(ctx, u.listen, page)
	if err != nil {
		return err
	}
	u.notice(os.Stderr, "the page is at http://%s/", address)
	<-ctx.Done()
	stop(15 * time.Second) // more than a break takes
	return ctx.Err()
}

// openEach opens a Client for each store. A store that does not answer is shown as silent.
func (u *uiCommand) openEach(ctx context.Context) (clients []*holdfast.Client, err error) {
	if err := u.store.checkURLs(); err != nil {
		return nil, err
	}
	for _, rawURL := range u.store {
		one := stores{rawURL}
		client, err := one.openClient(ctx, u.config(os.Stderr))
		if err != nil {
			return clients, err
		}
		clients = append(clients, client)
		u.options.Stores = append(u.options.Stores, lockui.Store{Name: publicURL(rawURL), Client: client})
	}
	return clients, nil
}

// isLoopback reports whether an address can be reached from this host alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // It is no address, and cannot be listened on.
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
