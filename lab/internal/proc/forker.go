// Package proc runs the components of a lab as child processes and makes sure that none outlives it. There are four
// mechanisms:
//
// A component leads a process group, which is killed with it. The kernel sends it SIGKILL when the supervisor ends. A
// cleanup process above the supervisor adopts orphans that left their group, and the supervisor stops when the cleanup
// process ends. Every process has an environment variable by which Sweep finds it later.
package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// forker starts processes on one thread that lives as long as this process. The kernel sends the death signal of a
// child when the thread ends that forked it, and Go can end threads at any time.
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

// start starts a command in its own process group. The kernel sends it the signal when this process ends.
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

// killGroup kills the process group of pid.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// labVariable is the environment variable of the processes of a lab.
const labVariable = "ARGOCD_AGENT_LAB_MEMBER"

// LabVariable returns the environment entry of all processes of the lab in directory.
func LabVariable(folder string) string { return labVariable + "=" + folder }

// Members returns the running processes of the lab in directory, except this one.
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
		if err != nil { // exited, or of another user
			continue
		}
		if hasEntry(string(environment), LabVariable(folder)) {
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
