package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// read completes the flags from the environment and checks them all. Everything
// that is wrong is in the error.
func read(f *flags, env []string, check func(*flags, *validationErrors) []warning) ([]warning, error) {
	warnings, bad := f.readEnvironment(env)
	if len(bad) == 0 { // a value that cannot be read contradicts nothing yet
		warnings = append(warnings, check(f, &bad)...)
	}
	if len(bad) > 0 {
		return nil, usageError{errors.Join(bad...)}
	}
	return warnings, nil
}

// warn logs what a user should know of the settings.
func warn(ctx context.Context, log *slog.Logger, warnings []warning) {
	for _, w := range warnings {
		log.WarnContext(ctx, "Setting needs attention", "setting", w.setting, "reason", w.reason)
	}
}

func checkPatterns(f *flags, bad *validationErrors, name string, patterns []string) {
	for _, pattern := range patterns {
		if err := kind.CheckPattern(pattern); err != nil {
			bad.add("%s: %w", f.name(name), err)
		}
	}
}

func checkSelector(f *flags, bad *validationErrors, name, selector string) {
	if _, err := kind.ParseSelector(selector); err != nil {
		bad.add("%s: %w", f.name(name), err)
	}
}

func checkLabels(f *flags, bad *validationErrors, name string, labels map[string]string) {
	for key, text := range labels {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			bad.add("%s: %q cannot be a label: %s", f.name(name), key, strings.Join(wrong, "; "))
		}
		if wrong := validation.IsValidLabelValue(text); len(wrong) > 0 {
			bad.add("%s: %q cannot be the value of a label: %s", f.name(name), text, strings.Join(wrong, "; "))
		}
	}
}

func checkAddress(f *flags, bad *validationErrors, name, address string) {
	host, number, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		bad.add("%s %q must be of the form host:port", f.name(name), address)
		return
	}
	if n, err := strconv.Atoi(number); err != nil || n < 1 || n > maxPort {
		bad.add("%s %q: the port must be a number from 1 to %d", f.name(name), address, maxPort)
	}
	if err := checkHost(host); err != nil {
		bad.add("%s %q: %w", f.name(name), address, err)
	}
}

// checkHost refuses what is written where a host's name or address belongs.
func checkHost(host string) error {
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return nil
	}
	switch {
	case strings.Contains(host, "://"):
		return errors.New("give a host name only, without a scheme")
	case strings.Contains(host, ":"):
		return errors.New("give a host name only; the port has a setting of its own")
	case len(validation.IsDNS1123Subdomain(strings.TrimSuffix(strings.ToLower(host), "."))) > 0:
		return fmt.Errorf("%q is neither a host name nor an IP address", host)
	}
	return nil
}

// isHeaderName reports whether gRPC can send a header of that name.
func isHeaderName(name string) bool {
	name = strings.ToLower(name)
	return name != "" && !strings.HasPrefix(name, "grpc-") && !strings.HasSuffix(name, "-bin") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}
