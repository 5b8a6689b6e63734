// Package lockui is a live page of locks: what is held, by which holder, since when, for how long
// yet, and how many wait. It is an [http.Handler] for programs with a mux of their own; the
// subcommand "holdfast ui" serves the same page.
//
//	page, err := lockui.Handler(lockui.Options{
//		Stores: []lockui.Store{{Name: "orders", Client: locks}},
//		Token:  os.Getenv("LOCKS_PAGE_TOKEN"),
//	})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/locks/", http.StripPrefix("/locks", page))
//
// The page lists all holds, to filter and sort, and for each store what [doctor.Examine] finds,
// which only reads. It works on a phone and by keyboard, and needs script. It asks for api/locks
// every 2 s, one JSON object that other programs can read, too: the stores, and the
// holds with the fields of "holdfast ls --json", the number of their store, and their age.
//
// # Requests to the stores
//
// Each store is listed once in 2 s for all viewers together, a slow one for a quarter of the time
// at most, and none while nobody watches. One that does not answer is shown as it was, in grey.
//
// # Safety
//
// The page is read-only unless Options.AllowBreak is set. A break is a POST that carries the
// fencing token that was shown: it ends that hold, and no later one. Each is logged.
//
// A Token goes over the network with each request: have TLS in front of the page. Without one, the
// page serves this host alone, and refuses requests that bear the marks of a proxy. A proxy that
// adds no header, changes the Host and speaks HTTP/1.1 looks like this host, and so does a client
// that names localhost as its Host to a TCP forwarder: a page that one of them can reach needs a
// Token. Options.BehindProxy declares that a proxy or a middleware admits the right
// people. Requests for a Host that is neither localhost, nor a loopback address, nor in
// Options.Hosts get 421, which keeps foreign pages from reaching it by a name of their own, and
// browsers from reaching it through a forwarder. With a Token or BehindProxy any IP address is
// served. A request that another site makes a browser send gets 403 if it could change something
// ([http.CrossOriginProtection]). The Content-Security-Policy admits the script and the style of
// the page alone. Names, holders and metadata come from others: the script shows them as text, with
// invisible characters spelled out.
//
// The package has no access to the secrets of holders, since no store lists them. The names of the
// stores are shown to every viewer, so keep passwords out of them.
package lockui
