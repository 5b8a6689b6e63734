// Package s3store keeps locks in a bucket of S3, or of a server that speaks its protocol, by
// conditional writes. There is no server to run.
//
//	store, err := s3store.New(client, "bucket", nil) // an s3.Client of the caller's
//	locks := holdfast.New(store, nil)
//
// A program without a client of its own imports the package for its URLs, and calls
// holdfast.Open(ctx, "s3://bucket", nil).
//
// # Guarantees
//
// Each name is one object, a record with the entries of its queue. A grant, a renewal and a release
// replace the object if nobody has replaced it meanwhile (If-Match), or make it if there is none
// (If-None-Match). So clients exclude each other as far as the server's conditional writes do, and
// a reply that was lost is found out by reading. No request is sent twice.
//
// No clock of the server counts, and no two clocks of clients are compared; their speeds may differ
// by what [driver.Validity] allows. An object has how long each of its entries lasts, and each
// client counts that from when it has first seen the entry as it was last renewed: never less than
// its owner expects.
//
// Fencing tokens rise strictly for each name. The object of a free name stays, for its last token.
// A token may be up to the difference of two clients' clocks ahead of the time.
//
// Waiters hold the name in their order, and look about every second and a half. The client of a
// hold that was broken learns it at the next renewal.
//
// # What can go wrong
//
// A client that sees a hold for the first time waits for all of its time, though that may have run
// out long ago. So after a holder has died the next one has the lock within the TTL and two seconds
// if it was waiting already, and otherwise a TTL from when it has begun to wait. A program that
// only tries never learns that a holder has died: it should wait for a TTL (holdfast run --wait).
//
// A server that takes a condition and ignores it would let two clients hold a lock. Each Store
// sends two PUTs before its first write that must be refused, and returns ErrUnsupported if one is
// not. A server that honors conditions only most of the time is not found.
//
// All clients of a name write one object, one after the other, and a hold comes before places. With
// 50 ms for a request, a hold with a TTL of 10 s was renewed beside 30 waiters with more than 5 s
// left, and beside 60, on a busy machine, once with less than 1 s. Where many wait, use a TTL of a
// minute or more, or MaxAttempts and Backoff, which make no place.
//
// Objects that are deleted by hand, by a rule of the bucket, or by a restored copy are locks that
// are forgotten. A user with the right to read the objects sees the secrets of owners, and can
// end their holds with the right to write the objects, too.
//
// # Costs
//
// A lock takes a GET and a PUT, and its release a PUT. A renewal, every third of the TTL, is a PUT:
// 360 an hour with the default TTL. A waiter sends 2,400 an hour, and where many wait for a name as
// many GETs, and each PUT about four times. At 0.005 $ for 1,000 PUTs, the list price of Amazon in
// many regions, a held lock costs 0.2 cents an hour and a waiter 1.2 cents.
//
// # Server set-up
//
// A bucket. The user needs the rights s3:GetObject and s3:PutObject below the prefix, and
// s3:ListBucket for the bucket: without that a missing object is reported as forbidden. A rule may
// delete objects below the prefix that were not written for longer than the longest TTL and keep.
// In a bucket with versions each write leaves one: a rule should delete those that are not current.
//
// Tried: versitygw 1.8.0 with files, and gofakes3 1.2.0. Not tried: Amazon S3 and Cloudflare R2,
// whose documentation has both conditions of a PUT; MinIO. Not suitable: Google Cloud Storage,
// whose conditions of a PUT have other names, by its documentation.
//
// The package is a module of its own, so that programs without it do not depend on the client of
// S3. The command holdfast executes the one with this store, if that is installed:
//
//	go install github.com/holdfast-go/holdfast/s3store/cmd/holdfast-s3@latest
//
// # URL
//
//	s3://bucket/prefix?region=eu-north-1
//	s3://bucket/prefix?endpoint=http://127.0.0.1:7070&path_style=true
//
// All parameters are optional. The prefix is holdfast/ by default. Credentials, and a region that
// is not in the URL, are those of the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION and
// so on), the files of AWS, or the machine. With an endpoint, path_style is true and the region
// us-east-1 by default.
package s3store
