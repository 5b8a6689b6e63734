package supervise

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A tree is a process that we have started, with all its descendants: the
// members of a job object, which Windows ends when we end, however that happens.
type tree struct {
	// exited receives the exit code of the root when it has ended.
	exited chan int

	// empty is closed when no process of the tree is left.
	empty chan struct{}

	job     windows.Handle
	killing sync.Once
}

var resumeProcess = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

// plant starts a command. It runs only when it is in its job, so that nothing
// that it starts can be outside.
func plant(cmd *Command) (*tree, error) {
	job, err := newJob()
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
	if err := admit(job, p.Pid); err != nil {
		return nil, errors.Join(fmt.Errorf("put the command into a job object: %w", err), p.Kill(), windows.CloseHandle(job))
	}
	t := &tree{exited: make(chan int, 1), empty: make(chan struct{}), job: job}
	go t.tend(p)
	return t, nil
}

func newJob() (windows.Handle, error) {
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

// admit puts a suspended process into the job and lets it run.
func admit(job windows.Handle, pid int) error {
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

// tend waits for the root, and then until the job has no member any more.
func (t *tree) tend(root *os.Process) {
	code := -1
	if state, err := root.Wait(); err == nil {
		code = state.ExitCode()
	}
	t.exited <- code
	for t.populated() {
		time.Sleep(10 * time.Millisecond)
	}
	close(t.empty)
}

// An accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	totalUserTime, totalKernelTime, periodUserTime, periodKernelTime int64

	pageFaults, totalProcesses, activeProcesses, terminatedProcesses uint32
}

func (t *tree) populated() bool {
	var info accounting
	err := windows.QueryInformationJobObject(t.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return err == nil && info.activeProcesses > 0
}

// terminate does nothing: Windows has no signal that asks a process to end.
func (t *tree) terminate() {}

// kill ends every process of the tree. It returns at once; empty is closed when
// it is done.
func (t *tree) kill() {
	t.killing.Do(func() { _ = windows.TerminateJobObject(t.job, 1) })
}
