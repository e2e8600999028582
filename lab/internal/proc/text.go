package proc

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// withFlags returns args with flags of the form --name=value set, added or (empty value) removed.
func withFlags(args []string, flags map[string]string) []string {
	args = slices.Clone(args)
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		args = slices.DeleteFunc(args, func(arg string) bool { return arg == name || strings.HasPrefix(arg, name+"=") })
		if value := flags[name]; value != "" {
			args = append(args, name+"="+value)
		}
	}
	return args
}

func withEnv(env []string, changes map[string]string) []string {
	env = slices.Clone(env)
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
		env = append(env, name+"="+changes[name])
	}
	return env
}

// residentBytes returns the resident memory of a process, or 0.
func residentBytes(pid int) int64 {
	statm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// tail returns the last lines of a file.
func tail(file string, lines int) string {
	content, _ := os.ReadFile(file)
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
