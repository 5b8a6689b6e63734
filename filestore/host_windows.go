package filestore

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// bootIDKey holds a number that Windows raises at every boot.
const bootIDKey = `SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters`

func thisHost() (host, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, bootIDKey, registry.QUERY_VALUE)
	if err != nil {
		return host{}, fmt.Errorf("cannot tell one boot of this host from the next: registry key %s: %w", bootIDKey, err)
	}
	defer key.Close()
	id, _, err := key.GetIntegerValue("BootId")
	if err != nil {
		return host{}, fmt.Errorf("cannot tell one boot of this host from the next: BootId in registry key %s: %w", bootIDKey, err)
	}
	boot := "windows-" + strconv.FormatUint(id, 10)
	return host{boot: boot, uptime: windows.DurationSinceBoot, wall: time.Now, flush: (*os.File).Sync}, nil
}
