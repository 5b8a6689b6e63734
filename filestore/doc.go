// Package filestore keeps locks in a folder of this host, with no server: for
// cron jobs, scripts, and the processes of one machine. It is what the command
// line uses by default.
//
// # Guarantees
//
// Exclusion among all processes of one host that open the same folder, of
// different users and in different containers too if they share it.
//
// Holder crash: the kernel closes the files of a process that dies, SIGKILL
// included. Its locks are free from then on, and on Linux waiters are told. A
// process that hangs or is stopped keeps its locks until their TTL. Holds that
// were asked for as detached outlive their process, until their TTL.
//
// Restart of the host: all locks are free, and so is what was kept after a
// release. The process that held them is gone as well.
//
// Fencing tokens rise strictly for each name, and across all of a name's
// history: release, expiry, break, crash, reboot, power loss, and a wall clock
// that is set back. They follow the time of day as it was at the first use in
// each boot, in microseconds.
//
// Expiry is counted on the clock of the boot, which goes on while the host is
// suspended. The wall clock is only for what people see.
//
// Not fair: of those who wait, any may be next. Push on Linux only.
//
// # What can go wrong
//
// A grant does not wait for the disk, except for one in about ten minutes: a
// power loss frees all locks anyway, and that fsync keeps the tokens rising. A
// floor more than ten minutes ahead of the clock costs two fsyncs at every grant
// above it.
//
// A process that is stopped (SIGSTOP) in the few microseconds in which it has a
// record locked holds up what must be written there until it goes on or is
// killed, and one that is stopped in the few milliseconds of that fsync holds up
// all grants. Requests fail when their context ends; no two hold a lock.
//
// Network file systems are refused on Linux and macOS. On Windows they are not
// recognised: do not use one. Even where file locks work over the network, the
// clock and the identity of the boot do not.
//
// Deleting files: without its record a lock is free, and the tokens of that name
// go on from the clock. Without the session file of its holder a lock is free at
// its TTL, not at once. Without the tokens file, tokens go on from the time of
// day. A program that cleans up /tmp by age must leave the folder alone.
//
// A record that cannot be read as one is an error, [driver.ErrCorrupt], that
// names the file; other names go on. An empty file is a free name.
//
// A process in another time namespace has another clock of the boot, and must
// not share the folder. Neither may virtual machines: each is a host.
//
// Holds that were not released when a Store is closed stay until their TTL. The
// same is true of holds whose process died when the session file cannot be read.
//
// On macOS and Windows, waiters try at intervals. On Windows the files of idle
// names stay, and the clock has steps of 16 ms.
//
// # Server set-up
//
// None. The folder is made when it is first used, for one user alone. To share
// locks between users, make it beforehand and give them access: files and
// folders inside get the permissions of the folder, whatever the umask. Two
// ways, for everybody and for a group:
//
//	mkdir -m 1777 /var/lib/locks
//	mkdir /srv/locks && chgrp staff /srv/locks && chmod 2770 /srv/locks
//
// Whoever may write the folder can take, break and block the locks in it.
// Whoever may read it sees names, holders and metadata, but no owner secret:
// only its SHA-256 is there.
//
// The folder has a file per name in locks, one line of JSON that people can
// read; a file per open Store in sessions; and tokens, which keeps tokens
// rising. Files of names that have been free for ten minutes are deleted.
//
// # URL
//
//	file:                     the folder of the user, see DefaultDir
//	file:///var/lib/locks     an absolute path
//	file:some/locks           a path from the working directory
//
// with one parameter:
//
//	allow_network=true        do not refuse network file systems
package filestore
