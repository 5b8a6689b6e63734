// Package supervise runs a command under a lease, and ensures that the command and all its
// descendants are dead before another owner can have the lease. It knows nothing of locks: a
// lease is a deadline that moves, and a context that ends.
//
// # Two processes
//
// The parent is the process that the user has started. It has started the same program again as
// the supervisor, which acquires the lease, starts the command, renews, kills, reaps and gives
// back. The parent passes signals on, ends as the command did, and watches over the supervisor. A
// pair of sockets, the control connection, and a page of shared memory, the shared state, connect
// them.
//
// A process that may have other children than the supervisor becomes a front instead: process 1,
// and a program that a shell with children has executed in its place. It starts a parent behind
// itself, and knows no process but that. So all children of a parent, and of a supervisor, are its
// own: it waits for them, and kills them.
//
// A job has one state in both. The supervisor asks the parent before each start of a command: one
// that is suspended does not answer, and then the lease is given back until it is continued.
//
//	parent killed        the supervisor sees the sockets close, kills the tree, reaps it, and
//	                     gives the lease back
//	supervisor killed    the command dies by its parent-death signal; its descendants become
//	                     the parent's children, and it kills them
//	supervisor hung      the parent finds in the shared state that the time for SIGTERM or
//	                     SIGKILL has come, and kills the tree, supervisor included
//	parent stopped       the supervisor works on; when continued, the parent finds the latest
//	                     deadline in the shared state
//	one stopped, then    on Linux the kernel continues the one that is left (the supervisor by
//	the other killed     its parent-death signal, the parent by a signal for the end of a
//	                     pipe), and it does its work
//	renewal fails        the supervisor sends SIGTERM, and SIGKILL so early that all are dead
//	                     when the lease ends
//	both killed          the command dies by its parent-death signal, unless it has changed its
//	                     user; its descendants live on. A lease that lasts as long as a file is
//	                     open ([Command].Hold) waits for them
//	both stopped, or     nothing can be done: the tree is killed as soon as one of the two runs
//	the machine, or one  again. A fencing token protects meanwhile what the lease protects
//	killed, then the
//	other stopped
//
// # How a tree is killed
//
// On Linux parent and supervisor are reapers of orphans (PR_SET_CHILD_SUBREAPER). Every
// descendant therefore becomes their child in the end, in spite of sessions and double forks:
// when there is no child any more, no descendant is left. Killing goes on until then, beginning
// with the process's own children, since that makes their children its own. It cannot reach a
// process with another user's rights (one that a setuid program has started), one that has entered
// another PID namespace, nor one that another program starts on behalf of the command. In the first
// case, the lease is not given back before that process ends.
//
// The kernel's lists of the children of a process show those that hide in /proc, too (they are not
// dumpable, and /proc is mounted with hidepid). Where /proc belongs to another PID namespace they
// show nothing of use, and no command is started.
//
// What a kill needs is there before the command: the lists are open, and the Go runtime has its
// threads. A command that takes all processes of its user, or all files of the machine, can stop
// neither process. Nothing on that way waits for a reader of standard error, a disk, or the store.
//
// # Terminals
//
// With a controlling terminal the command joins the parent's process group, so that the shell
// sees one job and the terminal sends Ctrl-C, Ctrl-Z and changes of the window to the command
// itself. INT and QUIT are not passed on then while the job is in the foreground. The
// supervisor, in a group of its own, goes on renewing while the job is suspended. Without a
// terminal the command leads a group of its own, and signals go to that group.
//
// # Other systems
//
// macOS has neither reapers of orphans nor a parent-death signal: parent and supervisor find the
// descendants by their parents and by the command's group. An orphan escapes if it has left that
// group, and on a terminal always. On Windows one process does all, and a job object ends the whole
// tree with it, by force and without notice.
package supervise
