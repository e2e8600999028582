package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
)

// redisSettings say where a Redis is, and how it is reached.
type redisSettings struct {
	address, username, password, folder string

	tls, insecure bool
	ca            string
}

// redisFlags are the names that differ between the programs.
type redisFlags struct{ address string }

// usualRedis is what Argo CD's own manifests call it.
const usualRedis = "argocd-redis:6379"

func (s *redisSettings) declare(f *flags, n redisFlags, whose string) {
	f.add(n.address, text(&s.address, "HOST:PORT", usualRedis), "Redis of "+whose+".")
	f.add("redis-username", text(&s.username, "NAME", ""), "User name for that Redis.")
	f.defaultText("redis-username", "Redis' default user")
	f.add("redis-password", text(&s.password, "PASSWORD", ""), "Password for that Redis; better given in the environment.")
	f.defaultText("redis-password", "none")
	f.add("redis-creds-dir-path", text(&s.folder, "FOLDER", ""),
		"Folder with the files auth (the password) and auth_username, read again for each connection, instead of the two above.")
	f.add("redis-tls-enabled", onOff(&s.tls, false), "Redis is reached with TLS.")
	f.add("redis-tls-ca-path", text(&s.ca, "FILE", ""), "Certificates of the authorities that vouch for Redis, as a PEM file.")
	f.defaultText("redis-tls-ca-path", "those of the system")
	f.add("redis-tls-insecure", onOff(&s.insecure, false), "Do not verify the certificate of Redis: for experiments only.")
}

func (s *redisSettings) check(f *flags, bad *validationErrors, n redisFlags) {
	if !strings.HasPrefix(s.address, "/") {
		checkAddress(f, bad, n.address, s.address)
	}
	if s.folder != "" && f.anyGiven("redis-username", "redis-password") {
		bad.add("%s and %s are two places for the same credentials: remove one", f.names("redis-username", "redis-password"), f.name("redis-creds-dir-path"))
	}
	if !s.tls && f.anyGiven("redis-tls-ca-path", "redis-tls-insecure") {
		bad.add("%s without --redis-tls-enabled has no effect: add the one or remove the other", f.names("redis-tls-ca-path", "redis-tls-insecure"))
	}
	if s.insecure && s.ca != "" {
		bad.add("%s contradicts %s: no certificate is verified; remove one or the other", f.name("redis-tls-ca-path"), f.name("redis-tls-insecure"))
	}
}

func (s *redisSettings) endpoint() (redis.Endpoint, error) {
	e := redis.Endpoint{Address: s.address}
	switch {
	case s.folder != "":
		e.Credentials = redis.FromDirectory(s.folder)
	case s.username != "" || s.password != "":
		e.Credentials = redis.Fixed(s.username, s.password)
	}
	if !s.tls {
		return e, nil
	}
	host, _, err := net.SplitHostPort(s.address)
	if err != nil {
		host = ""
	}
	e.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: s.insecure} //nolint:gosec // only where somebody asked for it
	if s.ca == "" {
		return e, nil
	}
	pem, err := os.ReadFile(s.ca)
	if err != nil {
		return e, fmt.Errorf("read the authorities of Redis: %w", err)
	}
	e.TLS.RootCAs = x509.NewCertPool()
	if !e.TLS.RootCAs.AppendCertsFromPEM(pem) {
		return e, fmt.Errorf("read the authorities of Redis: there is no certificate in %s", s.ca)
	}
	return e, nil
}
