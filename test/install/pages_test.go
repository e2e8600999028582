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

// refused are commands of the pages that this fleet is in no need of, and what they say then.
var refused = map[string]string{
	"argocd-agentctl pki rotate --finish":                    "finish replacing the CA",
	"argocd-agentctl pending confirm 5f2c9b0e7d1a4c33":       "5f2c9b0e7d1a4c33",
	"argocd-agentctl pending confirm fleet-0123456789abcdef": "fleet-0123456789abcdef",
}

// serves are those that go on until they are interrupted, and what they show first.
var serves = map[string]string{"argocd-agentctl fleet": "http://127.0.0.1:"}

var console = regexp.MustCompile(`(?m)^ *\$ (argocd-agentctl .*)$`)

// commandsOfThePages runs what the pages about running a fleet tell people to type, one after the other, on a fleet in
// which w1 is connected. Answers to questions are yes.
func commandsOfThePages(t *testing.T, l *lab.Lab, ctl string) {
	t.Helper()
	tried := 0
	for _, page := range []string{"operations.md", "patterns.md", "modes.md"} {
		for _, found := range console.FindAllStringSubmatch(read(t, "../../docs", page), -1) {
			tried++
			line := found[1]
			command := l.Command(t.Context(), "sh", "-c", line+yes(t, ctl, line))
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
			case want == "" && failed && exit.ExitCode() != 3: // 3: it worked and found something
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

// served runs a command that goes on until it is interrupted, as far as what it shows first.
func served(t *testing.T, l *lab.Lab, command *exec.Cmd, line, what string) {
	t.Helper()
	env := command.Env
	command = l.Command(t.Context(), "sh", "-c", "exec "+line) // it is to be interrupted, not the shell
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

// yes is the flag that answers a command's question.
func yes(t testing.TB, ctl, line string) string {
	t.Helper()
	words, _, _ := strings.Cut(line, " -")
	help, complaint := run(t, ctl, append(strings.Fields(words)[1:], "--help")...)
	if complaint == "" && strings.Contains(help, "  -y, --yes") {
		return " --yes"
	}
	return ""
}

// path is the last PATH of an environment, which is the one that counts.
func path(env []string) (value string) {
	for _, entry := range env {
		if rest, found := strings.CutPrefix(entry, "PATH="); found {
			value = rest
		}
	}
	return value
}
