// Package supervise runs a command under a lease, and sees to it that the
// command and all its descendants are dead before the lease can be somebody
// else's. It knows nothing of locks: a lease is a deadline that moves, and a
// context that ends.
//
// # Two processes
//
// The front is the process that the user has started. It has started the same
// program again as the keeper, which acquires the lease, starts the command,
// renews, kills, reaps and gives back. The front passes signals on, returns the
// keeper's exit code, and watches over the keeper. They are tied by a pair of
// sockets and a page of shared memory, the board.
//
//	front killed         the keeper sees the sockets close, kills the tree, reaps
//	                     it, and gives the lease back
//	keeper killed        the command dies by its parent-death signal; its
//	                     descendants become the front's children, and it kills them
//	keeper hung          the front finds on the board that the time for SIGTERM or
//	                     SIGKILL has come, and kills the tree, keeper included
//	front stopped        the keeper works on; when continued, the front finds the
//	                     latest deadline on the board
//	renewal fails        the keeper sends SIGTERM, and SIGKILL so early that all
//	                     are dead when the lease ends
//	both killed          the command dies by its parent-death signal; its
//	                     descendants live on. A lease that lasts as long as a file
//	                     is open ([Command].Hold) waits for them
//	both stopped, or     nothing can be done: the tree is killed as soon as one of
//	the machine, or one  the two runs again. A fencing token protects what the
//	stopped, one killed  lease protects meanwhile
//
// # How a tree is killed
//
// On Linux front and keeper are reapers of orphans (PR_SET_CHILD_SUBREAPER), so
// that every descendant is their child in the end, whatever it does with sessions
// and double forks: when there is no child any more, nothing is left. Killing goes
// on until then, at our own children first, since that makes their children ours.
// It cannot reach a process with another user's rights (one that a setuid program
// has started), nor what others start on behalf of the command (cron, a container
// engine): for the first, the lease is not given back before they end.
//
// # Terminals
//
// Where there is a controlling terminal the command joins the front's process
// group, so that the shell sees one job and the terminal sends Ctrl-C, Ctrl-Z and
// changes of the window to the command itself. INT and QUIT are not passed on
// then while the job is in the foreground. The keeper, in a group of its own, goes
// on renewing while the job is suspended. Without a terminal the command leads a
// group of its own, and signals go to that.
//
// # Other systems
//
// macOS has neither reapers of orphans nor a parent-death signal: front and
// keeper find the descendants by their parents and by the command's group. A
// descendant that has become an orphan and has left the group escapes, as does
// every orphan where the command has joined the front's group. On Windows one
// process does all, and a job object ends the command's whole tree with it, by
// force and without notice.
package supervise
