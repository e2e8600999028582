package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/argocd-agent/argocd-agent/internal/agent"
)

// declared are the flags of a command.
func declared(prefix string) *flags {
	f := newFlags(pflag.NewFlagSet("", pflag.ContinueOnError), prefix)
	if prefix == principalPrefix {
		new(principalSettings).declare(f)
	} else {
		new(agentSettings).declare(f)
	}
	return f
}

func TestMistakesOnTheCommandLineAreNamed(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"foo", "there is no command \"foo\": `argocd-agent --help` lists them"},
		{"agent --foo", "there is no flag --foo: `argocd-agent agent --help` lists them"},
		{"agent -x", "there is no flag -x: `argocd-agent agent --help` lists them"},
		{"principal --listen-port", "flag needs an argument: --listen-port"},
		{"principal serve", "\"serve\": `argocd-agent principal` takes flags only, no arguments"},
		{"version -o yaml", `--output "yaml": it must be one of text, json`},
	} {
		got := start(t, nil, strings.Fields(tc.args)...)
		if want := "argocd-agent: " + tc.want + "\n"; got.code != exitUsage || got.stderr != want || got.stdout != "" {
			t.Errorf("%s: exit code %d, %q, want %q", tc.args, got.code, got.stderr, want)
		}
	}
}

func TestFailureIsOneLineAndExitCodeOne(t *testing.T) {
	var stderr bytes.Buffer
	if code := report(&stderr, fmt.Errorf("connect: %w", errors.New("refused"))); code != 1 || stderr.String() != "argocd-agent: connect: refused\n" {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}

func TestFirstSignalDrainsAndIsNoError(t *testing.T) {
	ctx, stop := untilSignal(t.Context(), func(int) { t.Error("the process would have been ended") })
	defer stop()
	drained := false
	p := &program{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer), start: assemblies{
		agent: func(ctx context.Context, _ agent.Config) error {
			signalSelf(t, syscall.SIGTERM)
			<-ctx.Done()
			drained = true
			return fmt.Errorf("node: %w", context.Cause(ctx))
		},
	}}
	if err := p.run(ctx, append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0")); err != nil || !drained {
		t.Errorf("error %v, drained %v", err, drained)
	}
	if text := context.Cause(ctx).Error(); text != "received signal: terminated" {
		t.Errorf("cause %q", text)
	}
}

func TestErrorWhileDrainingIsAnError(t *testing.T) {
	ctx, stop := untilSignal(t.Context(), func(int) {})
	defer stop()
	p := &program{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer), start: assemblies{
		agent: func(ctx context.Context, _ agent.Config) error {
			signalSelf(t, syscall.SIGINT)
			<-ctx.Done()
			return errors.New("could not say goodbye")
		},
	}}
	if err := p.run(ctx, append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0")); err == nil {
		t.Error("no error")
	}
}

func TestSecondSignalEndsTheProcessAtOnce(t *testing.T) {
	codes := make(chan int, 1)
	ctx, stop := untilSignal(t.Context(), func(code int) { codes <- code })
	defer stop()
	signalSelf(t, syscall.SIGTERM)
	<-ctx.Done()
	signalSelf(t, syscall.SIGINT)
	if code := <-codes; code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}

func signalSelf(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Error(err)
	}
}

func TestVersionSaysWhatItWasBuiltFrom(t *testing.T) {
	var got build
	if err := json.Unmarshal([]byte(start(t, nil, "version", "-o", "json").stdout), &got); err != nil || got != thisBuild() {
		t.Errorf("%+v, %v, want %+v", got, err, thisBuild())
	}
	plain := start(t, nil, "version").stdout
	if flag := start(t, nil, "--version").stdout; flag != plain {
		t.Errorf("--version says %q, and the command %q", flag, plain)
	}
	for _, part := range []string{got.Version, got.Commit, got.GoVersion, got.Platform} {
		if part == "" || !strings.Contains(plain, part) {
			t.Errorf("%q lacks %q", plain, part)
		}
	}
}

func TestVersionOfTheLinkerWinsOverThatOfTheModule(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}}
	var b build
	b.fill(info)
	if b.Version != "v1.2.3" || b.Commit != "abc with changes" {
		t.Errorf("recorded by Go: %+v", b)
	}
	b = build{Version: "v2", Commit: "def"}
	b.fill(info)
	if b.Version != "v2" || b.Commit != "def" {
		t.Errorf("set by the linker: %+v", b)
	}
}

// The whole program, without a cluster: it waits for its API server, says so,
// and ends when it is told to.
func TestProgramsWaitForTheirClusterAndEndInPeace(t *testing.T) {
	authority := newAuthority(t)
	cert, key := authority.issue(t, "one")
	certFile, keyFile, caFile := write(t, "c", cert), write(t, "k", key), write(t, "a", authority.pem)
	for name, args := range map[string][]string{
		"principal": {"principal", "--kubeconfig", kubeconfig(t), "--listen-host", "127.0.0.1", "--listen-port", freePort(t),
			"--tls-cert", certFile, "--tls-key", keyFile, "--root-ca-path", caFile},
		"agent": append(agentArgs(t), "--tls-client-cert", certFile, "--tls-client-key", keyFile, "--root-ca-path", caFile),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		// The first line of the log is the sign that it has begun.
		stderr := &watched{said: func() { cancel(signalled{syscall.SIGTERM}) }}
		err := run(ctx, append(args, "--metrics-port", freePort(t), "--healthz-port", freePort(t)), nil, new(bytes.Buffer), stderr)
		cancel(nil)
		if err != nil || !strings.Contains(strings.ToLower(stderr.String()), "waiting for the api server") {
			t.Errorf("%s: %v\n%s", name, err, stderr)
		}
	}
}

// watched is a log that tells when it was written to.
type watched struct {
	bytes.Buffer
	said func()
}

func (w *watched) Write(b []byte) (int, error) {
	defer w.said()
	return w.Buffer.Write(b)
}
