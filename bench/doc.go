// Command bench measures Holdfast beside other lock libraries and beside the plain commands
// of their servers. It writes docs/benchmarks.md, which answers questions, and all figures to
// RESULTS.md and results/.
//
//	go run . [-only part,part…] [-rounds 5] [-span 1s] [-out ..]
//
// It starts the servers that it needs by itself, from the programs that
// internal/servers/install.sh of the main module installs; redisstore/interop/install.sh installs
// the rival in Node.js. A full run takes more than an hour, most of it for what grows, and two
// minutes a round for the election on etcd, which lasts 120 times -span. With -only it measures the
// scenarios with a name that contains one of the parts, and keeps the results of the others. With
// -only none it writes the pages again from the existing results.
//
// What is measured and how is in internal/measure of the main module. A scenario measures it for
// a list of contenders, which are in package lockers. Each round measures every contender once,
// on the same servers, which are emptied before, and has its own order. A contender that does
// not finish is reported as stuck. A scenario with a name that ends in -one-core or -two-cores pins
// client and server to cores, on Linux.
//
// This is a module of its own, so that users of Holdfast need none of the libraries that it
// is compared with.
package main
