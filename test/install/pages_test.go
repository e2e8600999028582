package install

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// refused lists commands of pages that must fail here, with a text of their error.
var refused = map[string]string{
	"argocd-agentctl pki rotate --finish":                    "finish the rotation",
	"argocd-agentctl pending confirm 5f2c9b0e7d1a4c33":       "5f2c9b0e7d1a4c33",
	"argocd-agentctl pending confirm fleet-0123456789abcdef": "fleet-0123456789abcdef",
}

// serves lists commands that run until they are interrupted, with their first output.
var serves = map[string]string{"argocd-agentctl fleet": "http://127.0.0.1:"}

// forced lists commands that need an agent in sync. The commands before them have just disconnected it.
var forced = map[string]bool{"argocd-agentctl agent reconfigure w1 --mode autonomous": true}

var console = regexp.MustCompile(`(?m)^ *\$ (argocd-agentctl .*)$`)

// commandsOfThePages runs the commands of the pages about operation, in order, while w1 is connected. It confirms all
// prompts.
func commandsOfThePages(t *testing.T, l *lab.Lab, ctl string) {
	t.Helper()
	tried := 0
	for _, page := range []string{"operations.md", "patterns.md", "modes.md"} {
		for _, found := range console.FindAllStringSubmatch(read(t, "../../docs", page), -1) {
			tried++
			line := found[1]
			flags := yes(t, ctl, line)
			if forced[line] {
				flags += " --force"
			}
			command := l.Command(t.Context(), "sh", "-c", line+flags)
			command.Env = append(command.Env, "PATH="+strings.TrimSuffix(ctl, "/argocd-agentctl")+":"+path(command.Env), "ARGOCD_AGENT_PRINCIPAL_CONTEXT=hub")
			if what := serves[line]; what != "" {
				served(t, l, command, line, what)
				continue
			}
			out, err := command.CombinedOutput()
			exit, failed := errors.AsType[*exec.ExitError](err)
			switch want := refused[line]; {
			case want != "" && (!failed || !strings.Contains(string(out), want)):
				t.Errorf("%s: %s: %v: %s, want %q", page, line, err, out, want)
			case want == "" && failed && exit.ExitCode() != 3: // 3: the command succeeded and found something
				t.Errorf("%s: %s: %v: %s", page, line, err, out)
			case err != nil && !failed:
				t.Fatal(err)
			}
		}
	}
	if tried < 10 {
		t.Errorf("the pages have only %d commands: is this test looking where it should?", tried)
	}
}

// served runs a command until its first output and interrupts it.
func served(t *testing.T, l *lab.Lab, command *exec.Cmd, line, what string) {
	t.Helper()
	env := command.Env
	command = l.Command(t.Context(), "sh", "-c", "exec "+line) // the signal must reach the command, not the shell
	command.Env = env
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	first, _ := bufio.NewReader(out).ReadString('\n')
	if !strings.Contains(first, what) {
		t.Errorf("%s shows %q, want %q", line, first, what)
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("%s: interrupted, it ends with %v", line, err)
	}
}

// yes returns the flag that skips the prompt of a command.
func yes(t testing.TB, ctl, line string) string {
	t.Helper()
	words, _, _ := strings.Cut(line, " -")
	help, errOut := run(t, ctl, append(strings.Fields(words)[1:], "--help")...)
	if errOut == "" && strings.Contains(help, "  -y, --yes") {
		return " --yes"
	}
	return ""
}

// path returns the last PATH of an environment, which is the effective one.
func path(env []string) (value string) {
	for _, entry := range env {
		if rest, found := strings.CutPrefix(entry, "PATH="); found {
			value = rest
		}
	}
	return value
}
