package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dropBinaryPages unmaps the pages of this program's code and tables. Most of them are used only at the start, and count as
// memory of the process. The kernel keeps them in its page cache while memory is free, and maps a page again when it is used.
func dropBinaryPages() {
	binary, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	for _, m := range cleanMappings(f, binary) {
		// Errors do not matter: the pages stay.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(m.start), uintptr(m.end-m.start), unix.MADV_COLD)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(m.start), uintptr(m.end-m.start), unix.MADV_DONTNEED)
	}
}

// mapping is a part of the address space.
type mapping struct{ start, end uint64 }

// cleanMappings returns the mappings of a file that are not writable and have no changed page, from the text of smaps. A
// changed page, such as one with relocations, cannot be read from the file again.
func cleanMappings(smaps io.Reader, file string) (clean []mapping) {
	var current mapping
	candidate, changed := false, false
	finish := func() {
		if candidate && !changed {
			clean = append(clean, current)
		}
	}
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		if name, isValue := strings.CutSuffix(fields[0], ":"); isValue {
			if (name == "Anonymous" || name == "Private_Dirty" || name == "Swap") && fields[1] != "0" {
				changed = true
			}
			continue
		}
		finish()
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		current, changed = mapping{start, end}, false
		candidate = err1 == nil && err2 == nil && end > start && len(fields) == 6 && fields[5] == file && strings.HasPrefix(fields[1], "r-")
	}
	if lines.Err() != nil {
		return nil
	}
	finish()
	return clean
}
