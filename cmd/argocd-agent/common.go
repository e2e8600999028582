package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// commonSettings are the settings that principal and agent share.
type commonSettings struct {
	clusterSettings
	observeSettings
	tlsSettings
	certificateSettings

	allowedNamespaces []string
	byDestination     bool
	selector          string
	webSocket         bool
	plaintext         bool
	spiffe            spiffeSettings
}

func (s *commonSettings) common() *commonSettings { return s }

// settings are the settings of a component.
type settings interface {
	common() *commonSettings
	declare(f *flags)
	check(f *flags)
	// run runs the component until ctx ends. The caller closes the listeners that it opens.
	run(ctx context.Context, to observers, open *listeners, start components) error
}

// observers receive what a component reports.
type observers struct {
	log    *slog.Logger
	tracer *trace.Tracer // nil if traces are off
	audit  *audit.Log    // nil if there is no audit log
}

// componentCommand completes the command that runs a component.
func (p *program) componentCommand(cmd *cobra.Command, prefix string, s settings) *cobra.Command {
	f := newFlags(cmd.Flags(), prefix)
	s.declare(f)
	f.acceptExisting()
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { f.help(cmd.OutOrStdout(), cmd) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.readEnvironment(p.env)
		if len(f.errs) == 0 { // otherwise checks would see default values
			s.common().check(f)
			s.check(f)
		}
		if len(f.errs) > 0 {
			return cmdline.UsageError(errors.Join(f.errs...))
		}
		ctx, common := cmd.Context(), s.common()
		log := common.logger(p.stderr)
		for _, w := range f.warnings {
			log.WarnContext(ctx, "Setting needs attention", "setting", w.setting, "reason", w.reason)
		}
		tracer, err := common.otlp.tracer(ctx, "argocd-agent-"+cmd.Name(), log)
		if err != nil {
			return err
		}
		defer tracer.Close()
		auditLog, err := common.auditLog(ctx, cmd.Name(), p.stdout, log)
		if err != nil {
			return err
		}
		defer auditLog.Close()
		var open listeners
		defer open.close()
		return withProfiler(ctx, common.pprof, log, func(ctx context.Context) error {
			return s.run(ctx, observers{log, tracer, auditLog}, &open, p.start)
		})
	}
	return cmd
}

// addReplication declares the settings that select what is replicated.
func (s *commonSettings) addReplication(f *flags, namespaces, namespacesUnset string) {
	f.add("allowed-namespaces", list(&s.allowedNamespaces, "PATTERNS"), namespaces+
		" Comma-separated globs or /regular expressions/.").defaultText(namespacesUnset)
	f.add("label-selector", text(&s.selector, "SELECTOR", ""),
		"Replicate only objects whose labels match, such as team=web,tier!=test.").defaultText("all objects")
}

func (s *commonSettings) check(f *flags) {
	s.clusterSettings.check(f)
	s.observeSettings.check(f)
	s.tlsSettings.check(f)
	for _, pattern := range s.allowedNamespaces {
		f.failIf("allowed-namespaces", kind.CheckPattern(pattern))
	}
	_, err := kind.ParseSelector(s.selector)
	f.failIf("label-selector", err)
	f.conflicts(s.plaintext, "insecure-plaintext", "inside a WebSocket the agent proves its identity with TLS", "enable-websocket")
}

// labelSelector returns nil if there is no label selector, as the components expect.
func (s *commonSettings) labelSelector() kind.Selector {
	if parsed, err := kind.ParseSelector(s.selector); err == nil && !parsed.Empty() {
		return parsed
	}
	return nil
}

func (s *commonSettings) mapping() kind.Mapping {
	if s.byDestination {
		return kind.ByDestination
	}
	return kind.ByNamespace
}

// jitter spreads retries.
func jitter() float64 {
	return rand.Float64() //nolint:gosec // not a secret
}
