// Package proc runs the components of a lab as child processes and makes sure that none outlives it.
//
// Four nets, each for what slips through the one before: a component leads a process group, which is killed with it; it
// receives SIGKILL from the kernel when the supervisor dies; a keeper above the supervisor inherits grandchildren that
// left their group, and the supervisor ends in good order when the keeper dies; and every process carries a mark in its
// environment by which Sweep finds it later.
package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// forker starts processes on one thread that lives as long as this program. The kernel ties the death signal of a child
// to the thread that forked it, and Go ends threads when it likes.
var forker = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for task := range work {
			task()
		}
	}()
	return work
})

// start starts a command in a process group of its own. The kernel sends it the signal when this program dies.
func start(command *exec.Cmd, whenWeDie syscall.Signal) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = true
	command.SysProcAttr.Pdeathsig = whenWeDie
	result := make(chan error)
	forker() <- func() { result <- command.Start() }
	return <-result
}

// killGroup kills what is left of the process group that pid leads.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// markName is the environment variable by which the processes of a lab are found.
const markName = "ARGOCD_AGENT_LAB_MEMBER"

// Mark is the environment entry that every process of the lab in folder carries.
func Mark(folder string) string { return markName + "=" + folder }

// Members lists the living processes of the lab in folder, this one aside.
func Members(folder string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var members []int
	for _, entry := range entries {
		pid := processID(entry.Name())
		if pid == 0 || pid == os.Getpid() {
			continue
		}
		environment, err := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if err != nil { // gone, or not ours
			continue
		}
		if hasEntry(string(environment), Mark(folder)) {
			members = append(members, pid)
		}
	}
	return members
}

func hasEntry(environment, entry string) bool {
	for one := range strings.SplitSeq(environment, "\x00") {
		if one == entry {
			return true
		}
	}
	return false
}

func processID(name string) int {
	pid := 0
	for _, digit := range name {
		if digit < '0' || digit > '9' {
			return 0
		}
		pid = pid*10 + int(digit-'0')
	}
	return pid
}
