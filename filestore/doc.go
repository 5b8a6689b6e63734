// Package filestore keeps locks in a folder of this host, with no server: for cron jobs, scripts,
// and the processes of one machine. It is what the command line uses by default.
//
// # Guarantees
//
// Exclusion among all processes of one host that open the same folder, of different users and in
// different containers too if they share it.
//
// Order: the waiters of a name get it in the order in which they came, over all processes. Each is
// notified of its turn at once. A hold that is broken ends within 100 ms in its process.
//
// Holder crash: the kernel closes the files of a process that dies, SIGKILL included. Its locks are
// free from then on, and its places count no more. Waiters look for that, and for what has ended by
// its time: the first every 0.1 s, the second every 0.4 s, the eighth every 6.4 s, those behind
// every 10 s at most. So after the first waiters have died, too, the next may look only after 10 s.
// Each of a hundred in one Store looks once a second at most. A process that hangs or is stopped
// keeps its locks until their TTL, and a place for 30 s at most. A detached hold, and a keep,
// outlive their process.
//
// Restart of the host: all locks are free, and so are names that were kept after a release. A host
// whose clock begins at the same time of day at each boot must first use the folder sooner after
// the boot than it has last used it in the boot before. Otherwise it takes the two boots for one:
// keeps and detached holds last until their ends, and tokens may be those of the last minute again.
//
// Fencing tokens rise strictly for each name, and across all of a name's history: release, expiry,
// break, crash, reboot, power loss, and a wall clock that is set back. They follow the time of day
// in microseconds. Each reboot, and each flush that fails, can put them ten minutes ahead of it, or
// further ahead. The Floor of a request raises those of some other names, too. After a power loss
// they need a file system that keeps the name of a new file with an fsync of its contents, as those
// with a journal do.
//
// Expiry is counted on the boot clock, which goes on while the host is suspended. The wall clock
// tells one boot from the next in containers that have a boot id of their own (LXC, Incus,
// systemd-nspawn). Among these, a step of it by more than 10 s ends keeps, and the detached holds
// of processes that have ended. Before Linux 6.3, a process that has made a time namespace and not
// entered it (unshare --time without --fork) must not use the store.
//
// # What can go wrong
//
// The names are in 64 files. A grant waits for the disk once in about ten minutes for each of them,
// so that tokens rise over a power loss. A request reads all of a file, and one with 8 MB, some
// 20,000 holds and places, gets no more. What ends by its time may be in it for a minute more.
//
// A process that is stopped (SIGSTOP) in the few microseconds in which it has locked one of the
// files holds up all requests for the names in that file, and a List, until it goes on or is
// killed. Requests fail when their context ends, and Close after 3 s: then the holds of its Store
// last until their TTL or the end of the process. Exclusion holds. A process that is killed between
// a change and its notices delays those whose turn has come until they look.
//
// Network file systems are refused on Linux and macOS, and so are the shared folders of virtual
// machines and of Docker Desktop. On Windows they are not recognized: do not use one. Even where
// file locks work over the network, clocks and boots do not.
//
// Moving the folder, or one above it, frees its locks, as deleting it does. Deleting one of the
// files frees the locks in it, and their tokens go on from the time of day. Deleting the file of a
// session frees the locks of its Store. Programs that have opened a file go on with it when it is
// moved elsewhere, so two may hold a lock. A program that cleans up /tmp must leave the folder
// alone.
//
// A file that the store has not written, or that has another name elsewhere (cp -l), is an error,
// [driver.ErrCorrupt], that names the file. The names in the other files are not affected.
//
// On Windows the clock has steps of 16 ms, by which all that ends lasts longer, and a Store looks
// for notices every 20 ms in the file of its session, which grows by 100 bytes with each.
//
// # Server set-up
//
// None. The folder is made when it is first used, for one user alone. To share locks between
// users, root makes it beforehand for a group:
//
//	mkdir /srv/locks && chgrp staff /srv/locks && chmod 2770 /srv/locks
//
// Files have the group of the folder, and may be read and written by the users that may write it,
// whatever the umask, which must leave the owner its rights. A user outside of that group makes
// files for that user alone.
//
// The folder has up to 64 files (locks-…), with a line of JSON for each hold and place, and a named
// pipe for each open Store (session-…, a file on Windows). FAT has no named pipes, and cannot be
// used. A folder that an older version has used is refused. Older versions refuse one of this
// version, for the empty folder in it (locks).
//
// # Other users
//
// A folder must belong to the user of the process or to root. One that every user may write is
// refused (also /tmp), and so is one of another user, also by root, with [driver.ErrInvalid]. Nor
// does root make a folder in one of another user, such as the HOME that sudo has left. In a user
// namespace, a folder whose owner has no number there belongs to another user. In a container,
// name a folder in the volume, which the store makes (file:///volume/locks): an emptyDir of
// Kubernetes is writable for everybody.
//
// The members of a group that may write the folder are trusted. Each of them can take, break and
// block every lock, see its holder and metadata, and make records lie. Of owner secrets the folder
// has the SHA-256. No link in the folder leads a process out of it, and no file is written, or
// given other permissions, that has another name elsewhere or was moved there. A sticky folder that
// a group may write is refused, since its users may not remove what dead processes have left.
//
// A user with the right to read the folder alone sees when it changes, and opens no file: so that
// user blocks no lock, and sees no holder. A user with the right to write a folder above can put
// another one of the same owner, or of root, in its place, which is as deleting it. On Windows the
// access list of the folder decides, which the store does not examine.
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
//
// No shell expands ~ and $HOME in a URL of a configuration. A path that begins so is refused.
package filestore
