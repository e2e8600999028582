package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// httpProbe succeeds if the address answers 200. caFile has the CA of a TLS server. If empty, the certificate is not
// verified.
func httpProbe(address, caFile string) func(context.Context) error {
	trust := &tls.Config{InsecureSkipVerify: caFile == ""}
	if caFile != "" {
		trust.RootCAs = x509.NewCertPool()
		if pem, err := os.ReadFile(caFile); err == nil {
			trust.RootCAs.AppendCertsFromPEM(pem)
		}
	}
	client := &http.Client{
		Timeout:   3 * time.Second,
		Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true},
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", address, answer.Status)
		}
		return nil
	}
}

// TCPProbe succeeds if the address accepts connections.
func TCPProbe(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}
}
