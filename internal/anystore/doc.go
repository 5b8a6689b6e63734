// Package anystore has tests of package holdfast that any store can run.
package anystore
