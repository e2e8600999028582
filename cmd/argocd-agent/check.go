package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// dnsName returns an error if a name of an object in Kubernetes is invalid.
func dnsName(name string, check func(string) []string) error {
	if wrong := check(name); len(wrong) > 0 {
		return errors.New("invalid name: " + strings.Join(wrong, "; "))
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	for key, text := range labels {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return fmt.Errorf("invalid label %q: %s", key, strings.Join(wrong, "; "))
		}
		if wrong := validation.IsValidLabelValue(text); len(wrong) > 0 {
			return fmt.Errorf("invalid label value %q: %s", text, strings.Join(wrong, "; "))
		}
	}
	return nil
}

func checkAddress(address string) error {
	host, number, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return errors.New("must be of the form host:port")
	}
	if n, err := strconv.Atoi(number); err != nil || n < 1 || n > maxPort {
		return fmt.Errorf("the port must be a number from 1 to %d", maxPort)
	}
	return checkHost(host)
}

func checkHost(host string) error {
	if _, err := netip.ParseAddr(unbracket(host)); err == nil {
		return nil
	}
	switch {
	case strings.Contains(host, "://"):
		return errors.New("must be a host name without a scheme")
	case strings.Contains(host, ":"):
		return errors.New("must be a host name without a port; the port is a setting of its own")
	case len(validation.IsDNS1123Subdomain(strings.TrimSuffix(strings.ToLower(host), "."))) > 0:
		return fmt.Errorf("%q is neither a host name nor an IP address", host)
	}
	return nil
}

// unbracket removes the brackets around an IPv6 address.
func unbracket(host string) string { return strings.Trim(host, "[]") }

func hostPort(host string, port int) string {
	return net.JoinHostPort(unbracket(host), strconv.Itoa(port))
}

// isHeaderName reports whether gRPC can send a header of that name.
func isHeaderName(name string) bool {
	name = strings.ToLower(name)
	return name != "" && !strings.HasPrefix(name, "grpc-") && !strings.HasSuffix(name, "-bin") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}
