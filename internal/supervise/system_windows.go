package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Run runs body in this process and returns its exit code. On Windows a job object ends the
// command and its descendants when this process ends, and only a debugger can stop a process,
// so that a second process is not needed.
func Run(body func(*Supervisor) int, _ func(w io.Writer, pids []int)) (int, error) {
	s := newSupervisor(&parentHandle{pid: os.Getpid()})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for sig := range signals {
			s.handleSignal(sig.(syscall.Signal), true)
		}
	}()
	return body(s), nil
}

// A parentHandle is the supervisor's access to its parent. On Windows one process is both.
type parentHandle struct{ pid int }

// setDeadlines does nothing: there is no parent to notify.
func (p *parentHandle) setDeadlines(_, _ instant) {}

func (p *parentHandle) clearDeadlines() {}

// forwardSignal does nothing: the console sends Ctrl-C and Ctrl-Break to the command as well.
func (p *parentHandle) forwardSignal(*processTree, syscall.Signal, bool) {}

// ask gives the answer: one process does not outlive its own suspension.
func (p *parentHandle) ask(s *Supervisor) { s.mayStart <- struct{}{} }

// reportEnd does nothing: processes do not end by signals.
func (p *parentHandle) reportEnd(syscall.Signal) {}

// hasActed reports false: there is no parent process.
func (p *parentHandle) hasActed() bool { return false }

// EndBy does nothing: processes do not end by signals.
func EndBy(syscall.Signal) {}

// Write writes to standard error.
func (s *Supervisor) Write(text []byte) (int, error) { return os.Stderr.Write(text) }

var processStart = time.Now()

// bootNow relies on Go reading the interrupt time on Windows, which goes on during sleep. Only
// one process reads it, so that its origin does not matter.
func bootNow() instant { return instant(time.Since(processStart)) }

// A processTree is a process that was started, with all its descendants: the members of a job
// object, which Windows ends when this process ends, for whatever reason.
type processTree struct {
	exited   chan rootEnd  // receives the end of the root
	empty    chan struct{} // is closed when no process of the tree is left
	job      windows.Handle
	killOnce sync.Once
}

var resumeProcess = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

// startCommand starts a command. The command runs only when it is in its job, so that every
// process that it starts is in the job, too.
func (*parentHandle) startCommand(_ *Supervisor, cmd *Command) (*processTree, error) {
	job, err := newKillOnCloseJob()
	if err != nil {
		return nil, fmt.Errorf("create a job object: %w", err)
	}
	p, err := os.StartProcess(cmd.Path, cmd.Args, &os.ProcAttr{
		Env:   cmd.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED},
	})
	if err != nil {
		return nil, errors.Join(err, windows.CloseHandle(job))
	}
	if err := assignToJob(job, p.Pid); err != nil {
		return nil, errors.Join(fmt.Errorf("put the command into a job object: %w", err), p.Kill(), windows.CloseHandle(job))
	}
	tree := &processTree{exited: make(chan rootEnd, 1), empty: make(chan struct{}), job: job}
	go tree.reapLoop(p)
	return tree, nil
}

func newKillOnCloseJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	return job, err
}

// assignToJob puts a suspended process into the job and lets it run.
func assignToJob(job windows.Handle, pid int) error {
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE | windows.PROCESS_SUSPEND_RESUME
	process, err := windows.OpenProcess(access, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(job, process); err != nil {
		return err
	}
	if status, _, _ := resumeProcess.Call(uintptr(process)); status != 0 {
		return windows.NTStatus(status)
	}
	return nil
}

// reapLoop waits for the root, and then until the job has no process any more.
func (t *processTree) reapLoop(root *os.Process) {
	code := -1
	if state, err := root.Wait(); err == nil {
		code = state.ExitCode()
	}
	t.exited <- rootEnd{code: code}
	for t.hasProcesses() {
		time.Sleep(10 * time.Millisecond)
	}
	close(t.empty)
}

func (t *processTree) hasProcesses() bool {
	var info struct { // JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
		totalUserTime, totalKernelTime, periodUserTime, periodKernelTime int64

		pageFaults, totalProcesses, activeProcesses, terminatedProcesses uint32
	}
	err := windows.QueryInformationJobObject(t.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return err == nil && info.activeProcesses > 0
}

// terminate does nothing: Windows has no signal that requests the end of a process.
func (t *processTree) terminate() {}

// startKill ends every process of the tree. It returns at once; empty is closed when the tree
// has ended.
func (t *processTree) startKill() {
	t.killOnce.Do(func() { _ = windows.TerminateJobObject(t.job, 1) })
}
