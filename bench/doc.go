// Command bench measures Holdfast beside other lock libraries and beside the
// plain commands of their servers, and writes the page docs/benchmarks.md.
//
//	go run . [-only part,part…] [-rounds 5] [-span 1s] [-out ../docs/benchmarks.md]
//
// It starts the servers that it needs by itself, from the programs that
// internal/servers/install.sh of the main module installs. All of it takes about
// twenty minutes; -only measures the scenarios whose names contain one of the
// parts, and leaves the results of the others as they are. With -only none the
// page is written anew from what there is.
//
// A scenario is a file of this package. It says what it measures, for which
// contenders, and how. A contender is a way to lock, in package contend; it
// needs an entry in one of the lists there. What is the same for all of them is
// in [run]: each round measures every contender once, on the same servers,
// emptied before, and each round begins with another one. A contender that does
// not come to an end is said to be stuck.
//
// This is a module of its own, so that users of Holdfast need none of the
// libraries that it is compared with.
package main
