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
// Not fair: any other waiter may be next. Waiters are notified on Linux only. Of the processes
// that wait for a name 16 watch it, by one inotify instance each. The others look at it at
// intervals that grow with the age of the hold and with their number, up to 32 ms for each of
// them, and watch it when others have gone. So a release wakes few, and many that wait cost
// little. Where the kernel has no more inotify instances (128 per user by default), those 16
// look at it, too, at least four times a second.
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
// all grants. Requests fail when their context ends; exclusion holds.
//
// Network file systems are refused on Linux and macOS. On Windows they are not
// recognized: do not use one. Even where file locks work over the network, the
// clock and the identity of the boot do not.
//
// Moving the folder, or one above it, frees its locks, as deleting it does.
//
// An open Store keeps up to six descriptors: those of three folders, of its session, and of its
// watches and their timer. After the folder was moved it also keeps the three former ones until it is
// closed. A request closes all others before it
// returns, on an error as well. A request that ended while another process kept a record locked
// leaves one descriptor open until that process goes on.
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
// On macOS and Windows, waiters try at intervals. On macOS the folders above the
// store's must be readable. On Windows the files of idle names stay, and the clock
// has steps of 16 ms.
//
// # Server set-up
//
// None. The folder is made when it is first used, for one user alone. To share
// locks between users, make it beforehand and give them access: folders inside get
// the permissions of the folder, and files may be read and written by the users that may
// write the folder, whatever the umask. Two ways, for everybody and for a group:
//
//	mkdir -m 1777 /var/lib/locks
//	mkdir /srv/locks && chgrp staff /srv/locks && chmod 2770 /srv/locks
//
// Changing the permissions later does not change those of existing files.
//
// The folder has a file per name in locks, one line of JSON that people can
// read, with another line for each shared or limited hold; a file per open Store in sessions; and
// tokens, which keeps tokens rising. Files of names that have been free for ten minutes are deleted.
//
// # Other users
//
// What another user can do depends on the rights to the folder alone:
//
//   - No rights, or the right to enter it: nothing.
//   - To read it: list the names of locks. Files cannot be opened, so that locks
//     cannot be blocked; nor can holders and metadata be seen.
//   - To write it: take and break every lock, by deleting its record for example;
//     block every lock, by keeping its record locked or putting something else in
//     its place; see names, holders and metadata; make the tokens of a name fall;
//     make records lie about holders. Owner secrets are not in the folder, only
//     their SHA-256. In a sticky folder (1777) a user that has made the folders
//     locks and sessions, by being the first, can delete what others have made in
//     them. Make those two folders beforehand, in the same way, to avoid that.
//   - To write a folder above it: put another folder in its place, with the effect
//     of deleting the folder.
//
// No right to the folder gives more than that. A process that uses the folder, of
// root too, makes, changes, gives away and deletes nothing outside of it:
//
//   - Everything is done by name in folders that are open, and without following a
//     link there. Owners and permissions are set on open files that are new.
//   - Links on the way to the folder are followed only where root or the user of
//     the process has made them, in a folder that nobody else may write or that is
//     sticky. With any other the path is refused: see "Links that are refused".
//   - What root makes in a folder of another user belongs to that user, in the
//     default folder of that user's HOME too. If that user has no number in the user
//     namespace of the process, it stays root's of the namespace.
//   - A link, a pipe, a device, a file with a second name (a hard link), or a file
//     that belongs to neither the owner of the folder nor root nor this user, where
//     the owner alone may write, is refused with an error that names it.
//   - An empty record of this user, or any for root, is replaced and not written.
//   - Files are read up to the length of what the store writes.
//
// One thing remains where the system lets a user make hard links to the files of
// others (Linux with fs.protected_hardlinks=0): another user that may write the folder
// can pass off a record of the same name in another of the victim's lock folders as
// the one in this folder, if the second name comes and goes at the right moments.
// The lock in that other folder then changes.
//
// On Windows the access list of the folder decides, and files inherit it. No link
// inside leads out of the folder.
//
// # Links that are refused
//
// A link on the way to the folder that another user can set would let that user
// choose which folder of the process is used, and sweep files in it. The error matches
// [driver.ErrInvalid] and names the link. Three harmless set-ups look the same:
//
//   - User namespaces without root (bubblewrap, Flatpak, unshare -U). Root of the host
//     and every user without a number of its own in the namespace have one number
//     there, 65534. Links of the owner of "/" are followed in "/" and in the folders
//     of that owner directly in it (/home -> var/home, /var/run -> /run) if nobody
//     else may write there, and nowhere else. So no other user without a number
//     should have a folder directly in "/" that the path leads through.
//     Elsewhere, in /tmp for example, name the folder by its real path.
//   - One's own link in a folder that a group may write (umask 002): every member of
//     the group could replace it, and a store does not know the members of a group. Make
//     that folder writable for its owner alone (chmod g-w), or name the real path.
//   - A link that a deploy user switches (/srv/app/current -> releases/7) and that
//     root or a service user goes through. The real path is no way out if it changes
//     with every release, for each release would have locks of its own. Keep the
//     folder of locks beside the releases (/srv/app/locks), or in /var/lib.
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
