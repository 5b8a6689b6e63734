// Package storetest runs a test on every store: of package holdfast and of the recipes, in one
// process and over several, with links to the store that can be cut.
//
// To test all of them on another store, add a line to storeKinds. A store in a module of its own
// has tests that call Endings and Outage with what New returns.
package storetest
