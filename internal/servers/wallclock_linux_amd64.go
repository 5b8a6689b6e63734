package servers

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clockCode is put in the vDSO of a process, in place of its functions: each asks by a system call,
// and adds the seconds that follow it to the wall clock. Each is filled up to a multiple of 8.
var clockCode = map[string][]byte{
	"__vdso_clock_gettime": {
		0xb8, 0xe4, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME
		0x75, 0x0a, // jnz to ret
		0x48, 0x8b, 0x15, 6, 0, 0, 0, // mov rdx, [rip+6]
		0x48, 0x01, 0x16, // add [rsi], rdx
		0xc3, // ret
		0x90, 0x90,
	},
	"__vdso_gettimeofday": {
		0xb8, 0x60, 0, 0, 0, // mov eax, SYS_gettimeofday
		0x0f, 0x05, // syscall
		0x48, 0x85, 0xff, // test rdi, rdi
		0x74, 0x0a, // jz to ret
		0x48, 0x8b, 0x15, 5, 0, 0, 0, // mov rdx, [rip+5]
		0x48, 0x01, 0x17, // add [rdi], rdx
		0xc3, // ret
		0x90,
	},
}

// SetWallClock sets the difference between the wall clock of a process, which this one may trace,
// and the system's clock, in whole seconds, from now on. It suits programs that read the clock by
// the vDSO alone, as those in Go and Redis do. The other clocks are left alone.
func SetWallClock(tb testing.TB, pid int, offset time.Duration) {
	tb.Helper()
	if err := setWallClock(pid, offset); err != nil {
		tb.Fatalf("the clock of process %d cannot be set: %v", pid, err)
	}
}

func setWallClock(pid int, offset time.Duration) error {
	begin, end, err := vdso(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	file, err := elf.NewFile(io.NewSectionReader(memory, begin, end-begin))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	if err := stopOutside(pid, begin, symbols); err != nil {
		return err
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	seconds := binary.LittleEndian.AppendUint64(nil, uint64(offset/time.Second))
	free := end // Nothing is at the end of the last page.
	for _, symbol := range symbols {
		code := append(clockCode[symbol.Name], seconds...)
		if len(code) == len(seconds) {
			continue
		}
		free -= int64(len(code))
		entry := begin + int64(symbol.Value)
		jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(free-entry-5))
		_, err := memory.WriteAt(code, free)
		if _, jumpErr := memory.WriteAt(jump, entry); err != nil || jumpErr != nil {
			return errors.Join(err, jumpErr)
		}
	}
	return nil
}

// stopOutside stops the process while no thread is about to run what a jump overwrites: it would go
// on in the middle of the jump.
func stopOutside(pid int, begin int64, symbols []elf.Symbol) error {
	for {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		if err != nil {
			return err
		}
		isOutside := len(tasks) > 0
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			if err != nil {
				return err
			}
			fields := strings.Fields(string(text)) // "running", or the system call and its arguments, and then SP and PC
			pc, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
			if isOutside = isOutside && err == nil; !isOutside {
				break
			}
			for _, symbol := range symbols {
				entry := begin + int64(symbol.Value)
				isOutside = isOutside && !(clockCode[symbol.Name] != nil && pc > entry && pc < entry+5)
			}
		}
		if isOutside {
			return nil
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
		time.Sleep(time.Millisecond)
	}
}

// vdso returns where the vDSO of a process begins and ends.
func vdso(pid int) (begin, end int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			_, err = fmt.Sscanf(line, "%x-%x", &begin, &end)
			return begin, end, err
		}
	}
	return 0, 0, fmt.Errorf("no vDSO")
}
