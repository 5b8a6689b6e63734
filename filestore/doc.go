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
// included. Its locks are free from then on, and on Linux waiters are notified. A
// process that hangs or is stopped keeps its locks until their TTL. Detached
// holds outlive their process, until their TTL.
//
// Restart of the host: all locks are free, and so are names that were kept after
// a release. The processes that held them are gone as well.
//
// Fencing tokens rise strictly for each name, and across all of a name's
// history: release, expiry, break, crash, reboot, power loss, and a wall clock
// that is set back. They follow the time of day as it was at the first use in
// each boot, in microseconds.
//
// Expiry is counted on the clock of the boot, which goes on while the host is
// suspended. The wall clock is only for display.
//
// Shared and limited holds: each hold has its own TTL and token. It ends at once when its process
// dies, whatever happens to the others. A waiter that is refused because of such holds is recorded,
// and keeps all others out, so that readers do not starve a writer. That lasts until it has the name
// or gives up, for the time of its request at most, and not after the death of its process. One
// waiter at a time is recorded.
//
// Not fair: any other waiter may be next. Waiters are notified on Linux only. Each process that waits
// for a name watches it, by an inotify instance, and looks at it up to 2 ms after a release. Where the
// kernel has no more inotify instances (128 per user by default), it looks at the name at least four
// times a second.
//
// # What can go wrong
//
// A grant does not wait for the disk, except for one in about ten minutes: a
// power loss frees all locks anyway, and that fsync keeps the tokens rising. A
// floor more than ten minutes ahead of the clock costs two fsyncs at every grant
// above it.
//
// A process that is stopped (SIGSTOP) in the few microseconds in which it has a
// record locked holds up all requests for that name until it goes on or is
// killed, and one that is stopped in the few milliseconds of that fsync holds up
// all grants. Requests fail when their context ends; exclusion holds.
//
// Network file systems are refused on Linux and macOS. On Windows they are not
// recognized: do not use one. Even where file locks work over the network, the
// clock and the identity of the boot do not.
//
// Moving the folder, or one above it, frees its locks, as deleting it does.
//
// An open Store keeps up to five descriptors: those of three folders, of its session, and of its
// watches. A request closes all others before it returns, on an error as well.
//
// Deleting files: without its record a lock is free, and the tokens of that name
// go on from the clock. Without the session file of its holder a lock is free at
// its TTL, not at once. Without the tokens file, tokens go on from the time of
// day. A program that cleans up /tmp by age must leave the folder alone.
//
// A file that is not a valid record is an error, [driver.ErrCorrupt], that names
// the file. Other names are not affected. An empty file is a free name.
//
// A process in another time namespace has another clock of the boot, and must
// not share the folder. Neither may virtual machines: each is a host.
//
// A record with shared or limited holds has another format, 2. A version of this package without
// such holds returns an error for the name, which is then neither free nor held there. Records of
// exclusive holds are the same for all versions. A name has 10,000 holds at most, and 4 MiB of them.
// Each request reads the holds of its name, and each change writes them all: beside 1,000 shared
// holds one more takes milliseconds, and an exclusive one a tenth of a millisecond.
// A waiter watches 32 of the processes that hold a name. It detects the death of any other within
// 1 s.
//
// Holds that were not released when a Store is closed stay until their TTL. The same is true of
// holds of a dead process when its session file cannot be read.
//
// On macOS and Windows, waiters try at intervals. On Windows the files of idle names stay, and the clock
// has steps of 16 ms.
//
// # Server set-up
//
// None. The folder is made when it is first used, for one user alone. To share locks between users,
// root makes it beforehand for a group:
//
//	mkdir /srv/locks && chgrp staff /srv/locks && chmod 2770 /srv/locks
//
// Folders inside get its permissions, and files may be read and written by the users that may write
// the folder, whatever the umask. Changing the permissions later does not change those of existing
// files.
//
// The folder has a file per name in locks, one line of JSON that people can
// read, with another line for each shared or limited hold; a file per open Store in sessions; and
// tokens, which keeps tokens rising. Files of names that have been free for ten minutes are deleted.
//
// # Other users
//
// A folder must belong to the user of the process or to root. One that every user may write is refused
// (1777 as well, such as /tmp itself), and so is one of another user, also by root: the error matches
// [driver.ErrInvalid], and says so. Nor does root make a folder in one of another user, the HOME that
// sudo has left as it was for example. In a user namespace, a folder whose owner has no number there
// belongs to another user. In a container, name a folder in the volume, which the store makes
// (file:///volume/locks): an emptyDir of Kubernetes is writable for everybody.
//
// The members of a group that may write the folder are trusted. Each of them can take, break and block
// every lock, see its holder and metadata, and make records lie. Owner secrets are not in the folder,
// only their SHA-256. Nothing in the folder leads a process out of it, and what a record contains is
// shown without control characters.
//
// A user with the right to read the folder alone can list the names of locks, and cannot open a file:
// that user blocks no lock, and sees no holder and no metadata. A user with the right to write a folder
// above can put another one of the same owner, or of root, in its place. That has the effect of
// deleting the folder.
//
// On Windows the access list of the folder decides, and files inherit it. The store does not examine
// it.
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
