// Package kernel raises the kernel limit that several labs on one machine reach.
package kernel

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// instances is the Linux limit of inotify instances per user. The default of 128 is sufficient for about four labs of
// three clusters: API servers, controllers and gpg-agents watch files.
const instances = "/proc/sys/fs/inotify/max_user_instances"

// wanted is sufficient for many labs.
const wanted = 4096

// RaiseLimits raises the limit if it can. Otherwise it prints the command. This is not an error, because one lab works
// anyway.
func RaiseLimits(progress io.Writer) { raise(instances, progress) }

func raise(file string, progress io.Writer) {
	content, err := os.ReadFile(file)
	if err != nil {
		return
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || have >= wanted {
		return
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(wanted)), 0); err == nil {
		fmt.Fprintf(progress, "raised fs.inotify.max_user_instances from %d to %d, for several labs side by side\n", have, wanted)
		return
	}
	if have < 1024 {
		fmt.Fprintf(progress, "only %d inotify instances are allowed: before you start several labs side by side, run: sudo sysctl fs.inotify.max_user_instances=%d\n",
			have, wanted)
	}
}
