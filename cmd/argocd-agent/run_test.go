package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// declared returns the flags of a command.
func declared(prefix string) *flags {
	f := newFlags(pflag.NewFlagSet("", pflag.ContinueOnError), prefix)
	if prefix == principalPrefix {
		new(principalSettings).declare(f)
	} else {
		new(agentSettings).declare(f)
	}
	return f
}

func TestRun_UsageErrorsAreNamed(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"foo", "unknown command \"argocd-agent foo\": run `argocd-agent --help` to list commands"},
		{"agent --foo", "unknown flag --foo: run `argocd-agent agent --help` to list flags"},
		{"agent -x", "unknown flag -x: run `argocd-agent agent --help` to list flags"},
		{"principal --listen-port", "flag needs an argument: --listen-port"},
		{"principal serve", "unexpected argument \"serve\": run `argocd-agent principal --help` for examples"},
		{"version -o yaml", `--output "yaml": must be one of text, json`},
	} {
		got := start(t, nil, strings.Fields(tc.args)...)
		if want := "argocd-agent: " + tc.want + "\n"; got.code != cmdline.ExitUsage || got.stderr != want || got.stdout != "" {
			t.Errorf("%s: exit code %d, %q, want %q", tc.args, got.code, got.stderr, want)
		}
	}
}

func TestSignal_FirstOneShutsDownWithoutError(t *testing.T) {
	ctx, stop := untilSignal(t.Context(), func(int) { t.Error("the process would have exited") })
	defer stop()
	stopped := false
	p := &program{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer), start: components{
		agent: func(ctx context.Context, _ agent.Config) error {
			signalSelf(t, syscall.SIGTERM)
			<-ctx.Done()
			stopped = true
			return fmt.Errorf("agent: %w", context.Cause(ctx))
		},
	}}
	if err := p.run(ctx, append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0")); err != nil || !stopped {
		t.Errorf("error %v, stopped %v", err, stopped)
	}
	if text := context.Cause(ctx).Error(); text != "received signal: terminated" {
		t.Errorf("cause %q", text)
	}
}

func TestSignal_ErrorDuringShutdownIsReturned(t *testing.T) {
	ctx, stop := untilSignal(t.Context(), func(int) {})
	defer stop()
	p := &program{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer), start: components{
		agent: func(ctx context.Context, _ agent.Config) error {
			signalSelf(t, syscall.SIGINT)
			<-ctx.Done()
			return errors.New("close the connection")
		},
	}}
	if err := p.run(ctx, append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0")); err == nil {
		t.Error("no error")
	}
}

func TestSignal_SecondOneExitsAtOnce(t *testing.T) {
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

func TestVersion_PrintsBuildInformation(t *testing.T) {
	var got cmdline.Build
	if err := json.Unmarshal([]byte(start(t, nil, "version", "-o", "json").stdout), &got); err != nil || got != thisBuild() {
		t.Errorf("%+v, %v, want %+v", got, err, thisBuild())
	}
	plain := start(t, nil, "version").stdout
	if flag := start(t, nil, "--version").stdout; flag != plain {
		t.Errorf("--version prints %q, and the command %q", flag, plain)
	}
	for _, part := range []string{got.Version, got.Commit, got.Date, got.GoVersion, got.Platform} {
		if part == "" || !strings.Contains(plain, part) {
			t.Errorf("%q lacks %q", plain, part)
		}
	}
}

// Without a cluster, each component logs that it waits for the API server, and stops when it is signalled.
func TestRun_WaitsForAPIServerAndStopsOnSignal(t *testing.T) {
	authority := newAuthority(t)
	cert, key := authority.issue(t, "one")
	certFile, keyFile, caFile := write(t, "c", cert), write(t, "k", key), write(t, "a", authority.pem)
	for name, args := range map[string][]string{
		"principal": {"principal", "--kubeconfig", kubeconfig(t), "--listen-host", "127.0.0.1", "--listen-port", freePort(t),
			"--tls-cert", certFile, "--tls-key", keyFile, "--root-ca-path", caFile},
		"agent": append(agentArgs(t), "--tls-client-cert", certFile, "--tls-client-key", keyFile, "--root-ca-path", caFile),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		// The first line of the log shows that it has started.
		stderr := &watched{written: func() { cancel(signalled{syscall.SIGTERM}) }}
		err := run(ctx, append(args, "--metrics-port", freePort(t), "--healthz-port", freePort(t)), nil, new(bytes.Buffer), stderr)
		cancel(nil)
		if err != nil || !strings.Contains(strings.ToLower(stderr.String()), "waiting for the api server") {
			t.Errorf("%s: %v\n%s", name, err, stderr)
		}
	}
}

// watched is a log that reports each write.
type watched struct {
	bytes.Buffer
	written func()
}

func (w *watched) Write(b []byte) (int, error) {
	defer w.written()
	return w.Buffer.Write(b)
}
